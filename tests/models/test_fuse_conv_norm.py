"""Fused networks give what the networks gave; timm's and torch's own layers are the oracle."""

import timm
import torch
from torch import Tensor, nn

from longtail.models import create_model
from longtail.models.fuse_conv_norm import fuse_conv_norm


def shaken(net: nn.Module) -> nn.Module:
    """The network with statistics and affine parameters that are not those of a new norm."""
    generator = torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.copy_(0.1 * torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
            with torch.no_grad():
                module.weight.copy_(0.5 + torch.rand(module.num_features, generator=generator))
                module.bias.copy_(0.1 * torch.randn(module.num_features, generator=generator))
    return net.eval()


def norms(net: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())


def check_same(net: nn.Module) -> None:
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    fused = fuse_conv_norm(net, images[:1])
    assert fused is not net
    assert norms(fused) == 0
    with torch.no_grad():
        torch.testing.assert_close(fused(images), net(images), rtol=1e-4, atol=1e-4)


def test_norms_with_an_activation_of_their_own_are_fused() -> None:
    check_same(shaken(timm.create_model("tf_efficientnet_lite0", num_classes=5)))


def test_norms_before_a_separate_activation_are_fused() -> None:
    check_same(shaken(timm.create_model("resnet18", num_classes=5)))
    check_same(shaken(create_model("resnet8", 5)))


def test_the_network_itself_is_left_as_it_is() -> None:
    net = shaken(create_model("resnet8", 5))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fuse_conv_norm(net, torch.randn(1, 3, 32, 32))
    assert before.keys() == net.state_dict().keys()
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


class Twice(nn.Module):
    """A convolution whose output goes to its norm and past it, so that fusing would change the result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        z: Tensor = self.norm(y)
        return y + z


def test_what_would_change_the_output_is_not_fused() -> None:
    net = shaken(Twice())
    assert fuse_conv_norm(net, torch.randn(2, 3, 8, 8)) is net


def test_a_network_without_norms_stays() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert fuse_conv_norm(net, torch.randn(2, 3, 8, 8)) is net
