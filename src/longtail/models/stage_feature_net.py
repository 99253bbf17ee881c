"""Features of all stages of a network, and a network that classifies by them.

The last features of a pretrained network are about the classes that it was trained on. Earlier stages keep what other
images may need: texture, colour, small shapes. So the mean and the spread over the image of each stage's output join
the last features,

    h = [mean(f_1), std(f_1), ..., mean(f_S), std(f_S), features],    z = classifier((h − m) / s) / T

with the feature map f_i of stage i, the mean m and spread s of h over the training images, and a temperature T that
makes softmax(z) a probability one can believe. It costs next to
nothing: the maps are computed anyway. Take it for a frozen network. The idea is that of Evci et al., "Head2Toe:
Utilizing Intermediate Representations for Better Transfer Learning", ICML 2022, who select among many more features.

Where it matters in which part of the image something is, as for digits, signs and clothes, a mean over the whole image
loses it. `features="grid"` takes the means of the nine cells of a 3 x 3 grid instead:

    h = [mean(f_1, cell 1), ..., mean(f_1, cell 9), ..., mean(f_S, cell 9)]
"""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Of the blocks of a transformer, so many have their features joined.
_BLOCKS = 4
_CELLS = 3  # on each side of the grid


class StageFeatureNet(nn.Module):
    """A network with a linear (or other) classifier on the features of all its stages.

    Args:
        backbone: one of `create_model`; its own classifier is removed.
        num_classes: the number of outputs.
        in_channels: of the images.
        image_size: of the images, for networks with a fixed one.
        features: stages for means and spreads over the image; grid for means over the cells of a grid.

    Attributes:
        centre: m of the module's docstring, (D,), 0 at first.
        spread: s, (D,), 1 at first.
        temperature: T, a scalar, 1 at first.
        classifier: from features (B, D) to logits (B, K); may be replaced.

    Example:
        >>> from longtail.models import create_model
        >>> net = StageFeatureNet(create_model("resnet8", 10), 3)
        >>> net(torch.zeros(2, 3, 32, 32)).shape, net.num_features
        (torch.Size([2, 3]), 64)
    """

    centre: Tensor
    spread: Tensor
    temperature: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        *,
        in_channels: int = 3,
        image_size: int = 64,
        features: Literal["stages", "grid"] = "stages",
    ) -> None:
        super().__init__()
        self.features = features
        reset = getattr(backbone, "reset_classifier", None)
        if callable(reset):
            reset(0)
        self.backbone = backbone
        self.in_channels = in_channels
        transformer = isinstance(getattr(backbone, "blocks", None), nn.Sequential) and hasattr(backbone, "patch_embed")
        self._chosen: dict[str, Any] = {"indices": _BLOCKS} if transformer else {}
        if "extra_blocks" in inspect.signature(getattr(backbone, "forward_intermediates", _moments)).parameters:
            self._chosen["extra_blocks"] = True  # each stage of an EfficientNet, not only those that halve the map
        was_training = backbone.training
        with torch.no_grad():
            example = next(backbone.parameters()).new_zeros(1, in_channels, image_size, image_size)
            self.num_features = width = self.eval().stage_features(example).shape[1]
        self.train(was_training)
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.register_buffer("temperature", torch.ones(()))
        self.classifier: nn.Module = nn.Linear(width, num_classes)

    def stage_features(self, images: Tensor) -> Tensor:
        """Images to h, (B, D), as they come."""
        backbone: Any = self.backbone
        if not hasattr(backbone, "forward_intermediates"):
            last: Tensor = backbone.forward_head(backbone.forward_features(images), pre_logits=True)
            return last
        # Stages of a convolutional network, the last blocks of a transformer.
        maps: Sequence[Tensor]
        x, maps = backbone.forward_intermediates(images, output_fmt="NCHW", **self._chosen)
        if self.features == "grid":
            return torch.cat([F.adaptive_avg_pool2d(stage, _CELLS).flatten(1) for stage in maps], 1)
        pooled = [moment for stage in maps for moment in _moments(stage)]
        return torch.cat([*pooled, backbone.forward_head(x, pre_logits=True)], 1)

    def forward_features(self, images: Tensor) -> Tensor:
        """Images to (h − m) / s, (B, D)."""
        return (self.stage_features(images) - self.centre) / self.spread

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits (B, K), or to what the classifier takes (here the features)."""
        logits: Tensor = features if pre_logits else self.classifier(features) / self.temperature
        return logits

    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.classifier

    def forward(self, images: Tensor) -> Tensor:
        """Images to logits (B, K)."""
        return self.forward_head(self.forward_features(images))

    @torch.no_grad()
    def standardise(self, features: Tensor) -> None:
        """Take m and s from features (N, D) of the training images; a constant feature has s = 1."""
        self.centre.copy_(features.mean(0))
        spread = features.std(0, correction=0)
        self.spread.copy_(torch.where(spread > 1e-6, spread, torch.ones_like(spread)))


def _moments(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the positions of maps (B, C, H, W)."""
    mean = maps.mean(dim=(2, 3))
    variance = (maps - mean[:, :, None, None]).square().mean(dim=(2, 3))
    return mean, (variance + 1e-6).sqrt()
