"""The ResNet for CIFAR as public code has it, with shortcuts of option A; imports nothing of ours."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PublicBlock(nn.Module):
    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.changes, self.planes = stride != 1 or in_planes != planes, planes

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.changes:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.planes // 4, self.planes // 4), "constant", 0)
        return F.relu(out + x)


class PublicResNet(nn.Module):
    def __init__(self, blocks: int, num_classes: int, in_channels: int = 3, head: str = "linear") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        planes = 16
        for number, width in enumerate((16, 32, 64), 1):
            layer = []
            for block in range(blocks):
                layer.append(PublicBlock(planes, width, 2 if number > 1 and not block else 1))
                planes = width
            setattr(self, f"layer{number}", nn.Sequential(*layer))
        self.head = head
        setattr(self, head, nn.Linear(64, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.get_submodule("layer3")(self.get_submodule("layer2")(self.get_submodule("layer1")(out)))
        logits: Tensor = self.get_submodule(self.head)(F.avg_pool2d(out, out.shape[3]).flatten(1))
        return logits


def trained_like(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with statistics and affines that are not those of a fresh one."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features, generator=generator) * 0.3
            module.running_var = torch.rand(module.num_features, generator=generator) + 0.5
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.bias, 0, 0.3, generator=generator)
    return model.eval()
