import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.models import CifarResNet
from longtail.models.cifar_resnet import DEPTHS, SubsampleShortcut


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_resnet32_has_the_known_number_of_parameters() -> None:
    assert parameter_count(CifarResNet(32, num_classes=10)) == 464_154


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("num_classes", "in_channels"), [(10, 3), (100, 1)])
def test_parameters_equal_the_count_on_paper(depth: int, num_classes: int, in_channels: int) -> None:
    n = (depth - 2) // 6
    convolutions = (
        9 * in_channels * 16
        + 2 * n * 9 * 16 * 16
        + 9 * 16 * 32
        + (2 * n - 1) * 9 * 32 * 32
        + 9 * 32 * 64
        + (2 * n - 1) * 9 * 64 * 64
    )
    norms = 2 * 16 + 2 * 2 * n * (16 + 32 + 64)
    classifier = 64 * num_classes + num_classes
    model = CifarResNet(depth, num_classes, in_channels=in_channels)
    assert parameter_count(model) == convolutions + norms + classifier


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_parameters_round_to_the_paper_s_table_6(depth: int, millions: float) -> None:
    count = parameter_count(CifarResNet(depth, num_classes=10)) / 1e6
    assert round(count, 1 if depth == 110 else 2) == millions


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_depth_is_the_number_of_layers_with_weights(depth: int) -> None:
    layers = [m for m in CifarResNet(depth, 10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


@pytest.mark.parametrize("side", [8, 7, 1])
def test_the_shortcut_is_a_strided_convolution_with_a_shifted_identity(side: int) -> None:
    x = torch.randn(2, 16, side, side)
    identity = torch.zeros(32, 16, 1, 1)
    for channel in range(16):
        identity[channel + 8, channel] = 1
    assert torch.equal(SubsampleShortcut(16, stride=2)(x), F.conv2d(x, identity, stride=2))


def forward_by_hand(weights: dict[str, Tensor], x: Tensor, blocks: int) -> Tensor:
    """The forward pass in eval mode from the paper's figure, by functions alone."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance, scale, shift = (
            weights[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    x = norm(F.conv2d(x, weights["conv.weight"], padding=1), "norm").clamp_min(0)
    for stage in (1, 2, 3):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            out = F.conv2d(x, weights[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = F.conv2d(norm(out, f"{name}.norm1").clamp_min(0), weights[f"{name}.conv2.weight"], padding=1)
            shortcut = torch.zeros_like(out)
            first = (out.shape[1] - x.shape[1]) // 2
            shortcut[:, first : first + x.shape[1]] = x[:, :, ::stride, ::stride]
            x = (norm(out, f"{name}.norm2") + shortcut).clamp_min(0)
    return F.linear(x.flatten(2).sum(2) / x[0, 0].numel(), weights["classifier.weight"], weights["classifier.bias"])


def test_equals_the_paper_s_figure_written_out() -> None:
    torch.manual_seed(0)
    model = CifarResNet(14, num_classes=5)
    with torch.no_grad():
        for _ in range(3):  # running statistics that are not 0 and 1
            model(torch.randn(8, 3, 16, 16))
        model.eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
        x = torch.randn(4, 3, 16, 16)
        torch.testing.assert_close(model(x), forward_by_hand(model.state_dict(), x, blocks=2))


@pytest.mark.parametrize("side", [8, 28, 32, 33, 64])
def test_any_image_size_works(side: int) -> None:
    model = CifarResNet(8, num_classes=7, in_channels=1)
    assert model.forward_features(torch.zeros(2, 1, side, side)).shape == (2, 64)
    assert model(torch.zeros(2, 1, side, side)).shape == (2, 7)


def test_channels_last_gives_the_same_and_stays() -> None:
    model = CifarResNet(8, num_classes=7).eval()
    x = torch.randn(2, 3, 32, 32)
    before = model(x)
    model.to(memory_format=torch.channels_last)
    shortcut = SubsampleShortcut(16, stride=2)(torch.zeros(2, 16, 8, 8).to(memory_format=torch.channels_last))
    assert shortcut.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), before)


def test_convolutions_start_as_he_et_al() -> None:
    torch.manual_seed(0)
    for module in CifarResNet(32, num_classes=10).modules():
        if isinstance(module, nn.Conv2d):
            want = (2 / (9 * module.out_channels)) ** 0.5
            assert module.weight.std().item() == pytest.approx(want, rel=0.15)


def test_a_new_classifier_replaces_the_old_one() -> None:
    model = CifarResNet(8, num_classes=7).double()
    old = model.get_classifier()
    model.reset_classifier(3)
    assert model.get_classifier() is not old
    assert model.num_classes == 3
    assert model(torch.zeros(1, 3, 8, 8).double()).shape == (1, 3)
    model.reset_classifier(0)
    assert model(torch.zeros(1, 3, 8, 8).double()).shape == (1, model.num_features)


@pytest.mark.parametrize("depth", [2, 18, 34])
def test_a_depth_between_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"depth must be 6 n \\+ 2 .*, got {depth}"):
        CifarResNet(depth, num_classes=10)
