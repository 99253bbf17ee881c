"""Create a model by name: one of ours, or one of timm's. The only file that imports timm, and only when needed.

Our names come first: `resnet8`, `14`, `20`, `32`, `44`, `56` and `110` are the CIFAR ResNets, and other packages may
register more. Then come timm's (`resnet18`, `resnet50`, `vit_tiny_patch16_224`, ...). No name is in both today;
`timm/NAME` is always timm's.
"""

import difflib
import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail.models.base import MODELS
from longtail.models.pretrained_weights import PretrainedWeights, find_weights
from longtail.models.weights import load_weights

TIMM = "timm/"


def create_model(
    name: str,
    num_classes: int,
    *,
    in_channels: int = 3,
    pretrained: bool | str | Path | PretrainedWeights | None = False,
    image_size: int | None = None,
) -> nn.Module:
    """Make a model with `num_classes` outputs, in channels_last.

    Args:
        name: one of `list_models()`; timm's may carry a tag for its weights (`resnet50.a1_in1k`).
        num_classes: the number of outputs.
        in_channels: 3 for colour, 1 for grey images.
        pretrained: which weights, see `find_weights`; or those that it found. A classifier with another number of
            classes keeps its random weights.
        image_size: height and width of the images, for models built for another fixed size (most transformers).
            Convolutional models take any size.

    Raises:
        ValueError: the name is unknown, or there are no such weights.
        FileNotFoundError: there is no file at the path `pretrained`.
        ConnectionError: the hub cannot be reached.

    Example:
        >>> create_model("resnet20", 10)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    for argument, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    weights = pretrained if isinstance(pretrained, PretrainedWeights) else find_weights(name, pretrained)
    if name in MODELS:
        model = MODELS[name](num_classes, in_channels=in_channels)
    else:
        model = _create_timm_model(name, num_classes, in_channels, image_size)
    if weights is not None:
        load_weights(model, weights.file)
    return model.to(memory_format=torch.channels_last)


def list_models(pattern: str = "*", *, pretrained: bool = False) -> list[str]:
    """The names that `create_model` takes: ours, then timm's.

    Args:
        pattern: a shell pattern, such as `resnet*`.
        pretrained: only models with weights on timm's hub.

    Example:
        >>> list_models("resnet[1-4][0-9]")[:4]
        ['resnet14', 'resnet20', 'resnet32', 'resnet44']
    """
    import timm

    ours = sorted(MODELS, key=lambda name: (len(name), name))  # 8 before 14 before 110
    theirs = [name for name in timm.list_models(pretrained=pretrained) if name not in ours]
    return fnmatch.filter(theirs if pretrained else [*ours, *theirs], pattern)


def _create_timm_model(name: str, num_classes: int, in_channels: int, image_size: int | None) -> nn.Module:
    import timm

    name = name.removeprefix(TIMM)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, list_models(), n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise ValueError(f"there is no model {name!r}{hint}; `longtail list models` shows all names")
    settings: dict[str, Any] = {}
    config = timm.get_pretrained_cfg(name)
    # Only models with a fixed input size take the argument.
    if image_size is not None and config is not None and config.fixed_input_size:
        settings["img_size"] = image_size
    model: nn.Module = timm.create_model(name, num_classes=num_classes, in_chans=in_channels, **settings)
    return model
