"""The ResNets for 32 x 32 images: the backbone of nearly all published CIFAR-LT results.

    3x3 conv, 16 → n blocks of 16 → n blocks of 32, half size → n blocks of 64, half size → mean → linear

with depth 6 n + 2: ResNet-20, 32, 44, 56 and 110 have n = 3, 5, 7, 9 and 18 (and 8 and 14 are for quick tests). A
block is two 3x3 convolutions with batch norm. The shortcut of a block that halves the size is the paper's option A,
without parameters: every second pixel, and zeros for the new channels. ResNet-32 with 10 classes has 464,154
parameters; a "ResNet-32" with 1x1 convolutions in its shortcuts (option B) is another network.

Any image size works, since the mean is over all remaining pixels.

Reference: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2. Convolutions are
initialised as in He et al., ICCV 2015 (normal, fan out), and the linear layer as in torch.
"""

from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.models.base import MODELS

WIDTHS = (16, 32, 64)
DEPTHS = (8, 14, 20, 32, 44, 56, 110)


class SubsampleShortcut(nn.Module):
    """Option A: keep every `stride`-th pixel and pad the channels with zeros, half before and half after.

    Args:
        new_channels: the number of channels to add; even.
        stride: the distance between the pixels that are kept.
    """

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.padding = new_channels // 2
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C + new channels, ⌈H / stride⌉, ⌈W / stride⌉)."""
        kept = x[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, self.padding, self.padding))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them.

    `act1` directly follows `norm1`, so `convert_batch_norm` may fuse them; after `norm2` comes the sum first.
    """

    relu_after: ClassVar = {"norm1": "act1"}

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.act1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.act2 = nn.ReLU(inplace=True)
        same_shape = stride == 1 and in_channels == channels
        self.shortcut = nn.Identity() if same_shape else SubsampleShortcut(channels - in_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) to (B, channels, ⌈H / stride⌉, ⌈W / stride⌉)."""
        out = self.act1(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        result: Tensor = self.act2(out + self.shortcut(x))
        return result


class CifarResNet(nn.Module):
    """A ResNet for small images; see the module's docstring.

    Args:
        depth: 6 n + 2, the number of layers with weights.
        num_classes: the number of outputs.
        in_channels: 3 for colour, 1 for grey images.

    Example:
        >>> model = CifarResNet(32, num_classes=10)
        >>> sum(parameter.numel() for parameter in model.parameters())
        464154
    """

    relu_after: ClassVar = {"norm": "act"}

    def __init__(self, depth: int, num_classes: int, *, in_channels: int = 3) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth must be 6 n + 2 with n >= 1 (8, 14, 20, 26, 32, ...), got {depth}")
        self.num_features = WIDTHS[-1]
        self.conv = nn.Conv2d(in_channels, WIDTHS[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTHS[0])
        self.act = nn.ReLU(inplace=True)
        blocks = depth // 6
        self.stage1 = _stage(WIDTHS[0], WIDTHS[0], blocks, stride=1)
        self.stage2 = _stage(WIDTHS[0], WIDTHS[1], blocks, stride=2)
        self.stage3 = _stage(WIDTHS[1], WIDTHS[2], blocks, stride=2)
        self.classifier: nn.Module
        self.reset_classifier(num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.classifier

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a new one, or by the identity if `num_classes` is 0."""
        like = self.conv.weight
        self.num_classes = num_classes
        self.classifier = (
            nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)
            if num_classes
            else nn.Identity()
        )

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_channels, H, W) to features (B, 64), already averaged over the image."""
        out = self.act(self.norm(self.conv(x)))
        out = self.stage3(self.stage2(self.stage1(out)))
        features: Tensor = out.mean(dim=(2, 3))
        return features

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Features (B, 64) to logits (B, num_classes), or to the input of the classifier (here the features)."""
        logits: Tensor = features if pre_logits else self.classifier(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_channels, H, W) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x))


def _stage(in_channels: int, channels: int, blocks: int, *, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))


for _depth in DEPTHS:
    MODELS.register(f"resnet{_depth}")(partial(CifarResNet, _depth))
