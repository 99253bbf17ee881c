"""Samplers: which images an epoch shows, and in which order. One file each; `SAMPLERS` has them by name."""

from longtail.data.samplers.base import SAMPLERS, EpochSampler
from longtail.data.samplers.class_balanced import ClassBalancedSampler
from longtail.data.samplers.instance import InstanceSampler
from longtail.data.samplers.progressive import ProgressiveSampler
from longtail.data.samplers.reverse import ReverseSampler
from longtail.data.samplers.sequential import SequentialSampler
from longtail.data.samplers.square_root import SquareRootSampler

__all__ = [
    "SAMPLERS",
    "ClassBalancedSampler",
    "EpochSampler",
    "InstanceSampler",
    "ProgressiveSampler",
    "ReverseSampler",
    "SequentialSampler",
    "SquareRootSampler",
]
