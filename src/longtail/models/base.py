"""The registry of our own models; `create_model` adds timm's."""

from collections.abc import Callable

from torch import nn

from longtail._registry import Registry

MODELS = Registry[Callable[..., nn.Module]]("models")
"""Called as `MODELS[name](num_classes, in_channels=3)`. A model of another package joins through an entry point.

What methods require of a model, ours or timm's: `forward(x)` equals `forward_head(forward_features(x))`;
`get_classifier()` is the last layer, whose input is `forward_head(features, pre_logits=True)`; and
`reset_classifier(num_classes)` replaces it by a new one.
"""
