"""A model by its name: one of ours, or any of timm's. The one file that imports timm, and only when asked.

Our names come first: `resnet8`, `14`, `20`, `32`, `44`, `56` and `110` are the CIFAR ResNets, and other
packages may register more. Then come timm's (`resnet18`, `resnet50`, `vit_tiny_patch16_224` ...), which
has none of ours today. Should it get one, `timm/NAME` is timm's.
"""

import difflib
import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail.models.base import MODELS
from longtail.models.weights import load_weights

TIMM = "timm/"


def create_model(
    name: str,
    num_classes: int,
    *,
    in_channels: int = 3,
    pretrained: bool | str | Path = False,
    image_size: int | None = None,
) -> nn.Module:
    """Make a model with `num_classes` outputs, in channels_last.

    Args:
        name: one of `list_models()`; timm's may carry a tag for its weights (`resnet50.a1_in1k`).
        num_classes: outputs of the classifier.
        in_channels: 3 for colour, 1 for grey images.
        pretrained: False: fresh weights. True: those of timm's hub, downloaded if they are not in its cache.
            A path: a safetensors file. The classifier stays fresh when it has another number of classes.
        image_size: side of the images; needed by models that are built for one size (most transformers) when
            it is not theirs. Convolutional models take any.

    Raises:
        ValueError: the name is unknown, or there are no such weights.
        FileNotFoundError: `pretrained` is a path without a file.
        ConnectionError: the hub does not answer.

    Example:
        >>> create_model("resnet20", 10)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    for argument, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        if value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    if name in MODELS:
        if pretrained is True:
            raise ValueError(f"pretrained must be False or a safetensors file for {name}: it has no public weights")
        model = MODELS[name](num_classes, in_channels=in_channels)
    else:
        model = _create_timm_model(name, num_classes, in_channels, pretrained is True, image_size)
    if not isinstance(pretrained, bool):
        load_weights(model, pretrained)
    return model.to(memory_format=torch.channels_last)


def list_models(pattern: str = "*", *, pretrained: bool = False) -> list[str]:
    """The names `create_model` takes: ours, then timm's.

    Args:
        pattern: a shell pattern, such as `resnet*`.
        pretrained: only those whose weights timm's hub has.

    Example:
        >>> list_models("resnet[1-4][0-9]")[:4]
        ['resnet14', 'resnet20', 'resnet32', 'resnet44']
    """
    import timm

    ours = sorted(MODELS, key=lambda name: (len(name), name))  # 8 before 14 before 110
    theirs = [name for name in timm.list_models(pretrained=pretrained) if name not in ours]
    return fnmatch.filter(theirs if pretrained else [*ours, *theirs], pattern)


def _create_timm_model(
    name: str, num_classes: int, in_channels: int, pretrained: bool, image_size: int | None
) -> nn.Module:
    import timm

    name = name.removeprefix(TIMM)
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, list_models(), n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise ValueError(f"there is no model {name!r}{hint}; `longtail list models` shows all names")
    settings: dict[str, Any] = {}
    config = timm.get_pretrained_cfg(name)
    # Only models built for one size take the argument; the others would refuse it.
    if image_size is not None and config is not None and config.fixed_input_size:
        settings["img_size"] = image_size
    if pretrained:
        # custom_load is for weights in the formats of the papers' code; the hub's safetensors are timm's own.
        settings["pretrained_cfg_overlay"] = {"file": str(_download(name, config)), "custom_load": False}
    model: nn.Module = timm.create_model(
        name, pretrained=pretrained, num_classes=num_classes, in_chans=in_channels, **settings
    )
    return model


def _download(name: str, config: Any) -> Path:
    """The hub's safetensors file; timm itself would fall back to a pickle."""
    from huggingface_hub import hf_hub_download

    if config is None or config.hf_hub_id is None:
        raise ValueError(f"pretrained must be False or a safetensors file for {name}: timm's hub has no weights")
    try:
        return Path(hf_hub_download(config.hf_hub_id, "model.safetensors"))
    except OSError as error:  # no network, no such file, no room: the hub's errors all derive from it
        reason = str(error).splitlines()[0]
        raise ConnectionError(
            f"could not get the weights of {name} from huggingface.co/{config.hf_hub_id}: {reason} "
            "(download model.safetensors from there on another machine and pass its path as pretrained)"
        ) from error
