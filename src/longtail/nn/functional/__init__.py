"""The maths of compound batch normalization as pure functions: eager, readable, the definition."""

from longtail.nn.functional.compound_batch_norm import (
    MixtureStatistics,
    StatisticsSource,
    compound_batch_norm,
    split_batch_norm,
)
from longtail.nn.functional.mixture import mixture_moments, responsibilities

__all__ = [
    "MixtureStatistics",
    "StatisticsSource",
    "compound_batch_norm",
    "mixture_moments",
    "responsibilities",
    "split_batch_norm",
]
