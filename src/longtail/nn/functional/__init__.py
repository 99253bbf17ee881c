"""Compound batch normalization as pure functions; `naive` is the definition, slow and obvious."""

from longtail.nn.backends.base import MixtureStatistics
from longtail.nn.functional.compound_batch_norm import compound_batch_norm, split_batch_norm
from longtail.nn.responsibilities import mixture_moments, responsibilities

__all__ = [
    "MixtureStatistics",
    "compound_batch_norm",
    "mixture_moments",
    "responsibilities",
    "split_batch_norm",
]
