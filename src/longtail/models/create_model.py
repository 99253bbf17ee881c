"""Create a model by name: one of ours, or one of timm's. timm is imported only when needed.

Our names come first: `resnet8`, `14`, `20`, `32`, `44`, `56` and `110` are the CIFAR ResNets, and other packages may
register more. Then come timm's (`resnet18`, `resnet50`, `vit_tiny_patch16_224`, ...). No name is in both today;
`timm/NAME` is always timm's.
"""

import difflib
import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from longtail.models.base import MODELS
from longtail.models.pretrained_weights import TIMM, PretrainedWeights, find_weights
from longtail.models.weights import fit_weights


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
        in_channels: 3 for colour, 1 for grey images; pretrained weights of colour are summed to fit.
        pretrained: False for random weights; None for those on this machine, if there are any; True to download them
            if there are none; or the path of a file. `find_weights` says which. A classifier with another number of
            classes keeps its random weights.
        image_size: height and width of the images, for models built for another fixed size (most transformers).
            Convolutional models take any size that is not below their stride.

    Raises:
        ValueError: the name is unknown, the weights do not fit, or the images are smaller than the model's stride.
        FileNotFoundError: there is no file at the path `pretrained`.
        ConnectionError: the hub cannot be reached.

    Example:
        >>> create_model("resnet20", 10)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    for argument, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    check_model_name(name)
    weights = pretrained if isinstance(pretrained, PretrainedWeights) else find_weights(name, pretrained)
    if name in MODELS:
        model = MODELS[name](num_classes, in_channels=in_channels)
    else:
        model = _create_timm_model(name, num_classes, in_channels, weights, image_size)
    if weights is not None and weights.kind != "hub":
        fit_weights(model, weights.read(), weights.file)
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


def check_model_name(name: str) -> None:
    """Refuse a name that `create_model` does not know, with the nearest."""
    import timm

    name = name.removeprefix(TIMM)
    if name not in MODELS and not timm.is_model(name):
        near = difflib.get_close_matches(name, list_models(), n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise ValueError(f"there is no model {name!r}{hint}; `longtail list models` shows all names")


def _create_timm_model(
    name: str, num_classes: int, in_channels: int, weights: PretrainedWeights | None, image_size: int | None
) -> nn.Module:
    """A model of timm's; weights of the hub are loaded by timm, which knows what to change in them."""
    import timm

    name = name.removeprefix(TIMM)
    settings: dict[str, Any] = {}
    config = timm.get_pretrained_cfg(name)
    # Only models with a fixed input size take the argument.
    if image_size is not None and config is not None and config.fixed_input_size:
        settings["img_size"] = image_size
    from_hub = weights is not None and weights.kind == "hub"
    if weights is not None and from_hub:
        # custom_load is for weights in the format of a paper's code; the safetensors on the hub are in timm's own.
        settings["pretrained_cfg_overlay"] = {"file": str(weights.file), "custom_load": False}
    try:
        model: nn.Module = timm.create_model(
            name, pretrained=from_hub, num_classes=num_classes, in_chans=in_channels, **settings
        )
    except SafetensorError as error:
        file = weights.file if weights else None
        raise ValueError(f"{file} must be a valid safetensors file: {error} (delete it and download again)") from error
    _check_image_size(name, model, image_size)
    return model


def _check_image_size(name: str, model: nn.Module, image_size: int | None) -> None:
    """Refuse images of which the last feature map would have less than a pixel."""
    stages: Any = getattr(model, "feature_info", None) or []
    stride = max((stage["reduction"] for stage in stages), default=1)
    if image_size is not None and image_size < stride:
        raise ValueError(
            f"image_size must be at least {stride} for {name}, the stride of its last stage, got {image_size} "
            f"(--image-size {stride}, or --model resnet20, which is made for small images)"
        )
