"""Backbones: the CIFAR ResNets of the long-tail literature, and all timm models."""

from longtail.models.base import MODELS
from longtail.models.cifar_resnet import CifarResNet
from longtail.models.create_model import create_model, list_models
from longtail.models.weights import load_weights

__all__ = ["MODELS", "CifarResNet", "create_model", "list_models", "load_weights"]
