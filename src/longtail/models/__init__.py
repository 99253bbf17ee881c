"""Backbones: the CIFAR ResNets of the long-tail literature, and all timm models; pretrained weights for them."""

from longtail.models.base import MODELS
from longtail.models.cifar_resnet import CifarResNet
from longtail.models.create_model import create_model, list_models
from longtail.models.layer_groups import layer_groups
from longtail.models.pretrained_weights import PretrainedWeights, find_weights
from longtail.models.weights import load_weights

__all__ = [
    "MODELS",
    "CifarResNet",
    "PretrainedWeights",
    "create_model",
    "find_weights",
    "layer_groups",
    "list_models",
    "load_weights",
]
