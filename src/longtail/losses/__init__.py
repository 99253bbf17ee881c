"""Losses for long-tailed classification, one file each.

`LOSSES` has those of `(logits, target)` by name: `LOSSES["balanced_softmax"](class_counts)`. `LongTailLoss` states
their contract.
"""

from longtail.losses.balanced_softmax import BalancedSoftmaxLoss, balanced_softmax_loss
from longtail.losses.base import LOSSES, LongTailLoss
from longtail.losses.class_balanced import ClassBalancedLoss, class_balanced_loss
from longtail.losses.class_weights import class_weights
from longtail.losses.cross_entropy import CrossEntropyLoss, cross_entropy_loss
from longtail.losses.focal import FocalLoss, focal_loss
from longtail.losses.label_aware_smoothing import LabelAwareSmoothingLoss, label_aware_smoothing_loss
from longtail.losses.ldam import LDAMLoss, ldam_loss
from longtail.losses.logit_adjustment import LogitAdjustmentLoss, adjust_logits, logit_adjustment_loss
from longtail.losses.negative_cosine import negative_cosine_loss
from longtail.losses.vs import VSLoss, vs_loss

__all__ = [
    "LOSSES",
    "BalancedSoftmaxLoss",
    "ClassBalancedLoss",
    "CrossEntropyLoss",
    "FocalLoss",
    "LDAMLoss",
    "LabelAwareSmoothingLoss",
    "LogitAdjustmentLoss",
    "LongTailLoss",
    "VSLoss",
    "adjust_logits",
    "balanced_softmax_loss",
    "class_balanced_loss",
    "class_weights",
    "cross_entropy_loss",
    "focal_loss",
    "label_aware_smoothing_loss",
    "ldam_loss",
    "logit_adjustment_loss",
    "negative_cosine_loss",
    "vs_loss",
]
