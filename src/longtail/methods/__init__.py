"""Training methods, one file each: each turns the batches of a step into a loss, in plain torch."""

from longtail.data.views import Batch
from longtail.methods.ace import ACE
from longtail.methods.base import METHODS, EpochData, Method, MethodOutput, sum_parts
from longtail.methods.bbn import BBN
from longtail.methods.compound_bn import CompoundBN
from longtail.methods.decoupled import Decoupled
from longtail.methods.disalign import DisAlign
from longtail.methods.dive import DiVE
from longtail.methods.dro_lt import DROLT
from longtail.methods.erm import ERM
from longtail.methods.experts import Experts
from longtail.methods.fine_tune import FineTune
from longtail.methods.gistnet import GistNet
from longtail.methods.glmc import GLMC
from longtail.methods.ib import IB
from longtail.methods.lade import LADE
from longtail.methods.lift import LIFT
from longtail.methods.los import LOS
from longtail.methods.lws import LWS
from longtail.methods.mislas import MiSLAS
from longtail.methods.mode_norm import ModeNorm
from longtail.methods.nbn import NBN
from longtail.methods.paco import PaCo
from longtail.methods.ride import RIDE
from longtail.methods.ssd import SSD
from longtail.methods.tau_norm import TauNorm
from longtail.methods.unimix import UniMix
from longtail.methods.weight_balancing import WeightBalancing

__all__ = [
    "ACE",
    "BBN",
    "DROLT",
    "ERM",
    "GLMC",
    "IB",
    "LADE",
    "LIFT",
    "LOS",
    "LWS",
    "METHODS",
    "NBN",
    "RIDE",
    "SSD",
    "Batch",
    "CompoundBN",
    "Decoupled",
    "DiVE",
    "DisAlign",
    "EpochData",
    "Experts",
    "FineTune",
    "GistNet",
    "Method",
    "MethodOutput",
    "MiSLAS",
    "ModeNorm",
    "PaCo",
    "TauNorm",
    "UniMix",
    "WeightBalancing",
    "sum_parts",
]
