"""Backbones: the CIFAR ResNets of the long-tail literature, and any timm model."""

from longtail.models._registry import MODELS
from longtail.models.cifar_resnet import CifarResNet
from longtail.models.factory import create_model, list_models
from longtail.models.weights import load_weights

__all__ = ["MODELS", "CifarResNet", "create_model", "list_models", "load_weights"]
