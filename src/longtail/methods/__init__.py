"""Training methods, one file each: each turns a batch into a loss, in plain torch."""

from longtail.methods.base import METHODS, Batch, Method, MethodOutput
from longtail.methods.compound_bn import CompoundBN
from longtail.methods.decoupled import Decoupled
from longtail.methods.erm import ERM

__all__ = ["ERM", "METHODS", "Batch", "CompoundBN", "Decoupled", "Method", "MethodOutput"]
