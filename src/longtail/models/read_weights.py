"""Read the weights in a file: safetensors, or a checkpoint of torch.

A checkpoint is read with `weights_only=True`, so that nothing in it can run. Besides weights it may hold an epoch, an
optimiser and more: the weights are then under one of `NESTS`.
"""

import argparse
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

SUFFIXES = (".safetensors", ".pth", ".pt", ".pth.tar", ".th", ".bin", ".ckpt")
NESTS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model_state", "model", "net", "weights")
"""Where a checkpoint keeps its weights; where it has several, the first of these: averaged weights are the better."""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The weights in the file `path`, on the CPU, by the names that they have there.

    Args:
        path: a file that ends in one of `SUFFIXES`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is of another kind, broken, or has more in it than weights.
    """
    path = check_weights_file(path)
    if path.name.endswith(".safetensors"):
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"pretrained must be a valid safetensors file, got {path}: {error}") from error
    try:
        # timm's training script stores its arguments as a Namespace.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(
            f"pretrained must be a file of weights alone, got {path}: it is broken, or has objects that can run code "
            "when they are loaded (where you trust it, write its state_dict with safetensors.torch.save_file)"
        ) from error
    return _find_weights_in(content, path)


def check_weights_file(path: str | Path) -> Path:
    """The path, once it is known to be a file with a name that `read_weights` takes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: its name has another ending.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise ValueError(f"pretrained must be a file that ends in {', '.join(SUFFIXES[:-1])} or .ckpt, got {path}")
    if not path.is_file():
        raise FileNotFoundError(f"pretrained must be an existing file, got {path} (looked from {Path.cwd()})")
    return path


def _find_weights_in(content: Any, path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, however deep."""
    while isinstance(content, Mapping):
        inner = next((content[key] for key in NESTS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if isinstance(content, Mapping):
        weights = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Tensor)}
        if weights and len(weights) == len(content):
            return weights
    keys = ", ".join(str(key) for key in list(content)[:5]) if isinstance(content, Mapping) else type(content).__name__
    raise ValueError(f"pretrained must have weights, alone or under {' or '.join(NESTS)}, got {path} with {keys}")
