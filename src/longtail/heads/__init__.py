"""Heads: the last layer, trained on the features of a frozen network, in seconds."""

from longtail.heads.base import HEADS, Head
from longtail.heads.choose_head import HeadChoice, balanced_accuracy, choose_head, is_better
from longtail.heads.class_means import ClassMeansHead
from longtail.heads.cosine import CosineHead
from longtail.heads.crt import CRTHead
from longtail.heads.disalign import DisAlignHead
from longtail.heads.linear import LinearHead
from longtail.heads.los import LOSHead
from longtail.heads.lws import LWSHead
from longtail.heads.max_norm import MaxNormHead
from longtail.heads.tau_norm import TauNormHead

__all__ = [
    "HEADS",
    "CRTHead",
    "ClassMeansHead",
    "CosineHead",
    "DisAlignHead",
    "Head",
    "HeadChoice",
    "LOSHead",
    "LWSHead",
    "LinearHead",
    "MaxNormHead",
    "TauNormHead",
    "balanced_accuracy",
    "choose_head",
    "is_better",
]
