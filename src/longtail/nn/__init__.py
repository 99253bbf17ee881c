"""Compound batch normalization as torch layers, and the conversion of existing models."""

from longtail.nn import functional
from longtail.nn.compound_batch_norm import (
    CompoundBatchNorm,
    CompoundBatchNorm1d,
    CompoundBatchNorm2d,
    CompoundBatchNorm3d,
)
from longtail.nn.convert import CompoundBatchNormAct2d, CompoundBatchNormNd, convert_batch_norm
from longtail.nn.fold import fold_batch_norm
from longtail.nn.frozen_statistics import frozen_statistics
from longtail.nn.mode_norm import ModeNorm2d, convert_mode_norm
from longtail.nn.normalized_batch_norm import NormalizedBatchNorm2d, convert_normalized_batch_norm
from longtail.nn.readings import READINGS, Reading
from longtail.nn.split_path import class_groups, split_path

__all__ = [
    "READINGS",
    "CompoundBatchNorm",
    "CompoundBatchNorm1d",
    "CompoundBatchNorm2d",
    "CompoundBatchNorm3d",
    "CompoundBatchNormAct2d",
    "CompoundBatchNormNd",
    "ModeNorm2d",
    "NormalizedBatchNorm2d",
    "Reading",
    "class_groups",
    "convert_batch_norm",
    "convert_mode_norm",
    "convert_normalized_batch_norm",
    "fold_batch_norm",
    "frozen_statistics",
    "functional",
    "split_path",
]
