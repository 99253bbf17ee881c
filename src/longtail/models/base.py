"""The names of our own models; factory.py adds timm's."""

from collections.abc import Callable

from torch import nn

from longtail._registry import Registry

MODELS = Registry[Callable[..., nn.Module]]("models")
"""Called as `MODELS[name](num_classes, in_channels=3)`. A model of another package joins by an entry point.

What methods ask of a model, ours or timm's: `forward(x)` equals `forward_head(forward_features(x))`, and
`get_classifier()` is the last layer, which `reset_classifier(num_classes)` replaces by a new one. It takes what
`forward_head(features, pre_logits=True)` gives.
"""
