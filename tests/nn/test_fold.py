import logging
from typing import Literal

import pytest
import timm
import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from longtail.models.cifar_resnet import CifarResNet
from longtail.nn import (
    READINGS,
    CompoundBatchNorm,
    CompoundBatchNorm1d,
    CompoundBatchNorm2d,
    CompoundBatchNorm3d,
    convert_batch_norm,
    fold_batch_norm,
)
from tests.support.plain_reading import plain


def used(model: nn.Module) -> nn.Module:
    """A model whose batch norms are not as they start."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("reading", READINGS)
def test_a_converted_network_folds_back_to_what_it_was(reading: str) -> None:
    plain = used(CifarResNet(8, num_classes=5))
    x = torch.randn(4, 3, 16, 16)
    expected = plain(x)
    model = fold_batch_norm(convert_batch_norm(plain, reading=reading))
    assert not any(isinstance(module, CompoundBatchNorm) for module in model.modules())
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_what_is_folded_goes_on_into_the_convolution() -> None:
    model = used(CifarResNet(8, num_classes=5))
    x = torch.randn(4, 3, 16, 16)
    expected = model(x)
    fused = fuse(fold_batch_norm(convert_batch_norm(model)))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    torch.testing.assert_close(fused(x), expected, rtol=1e-4, atol=1e-4)


def test_an_activation_that_was_fused_with_the_norm_is_kept() -> None:
    model = used(timm.create_model("efficientnet_b0", num_classes=3))
    x = torch.randn(2, 3, 32, 32)
    expected = model(x)
    torch.testing.assert_close(
        fold_batch_norm(convert_batch_norm(model, reading=plain()))(x), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("layer", "kind", "shape"),
    [
        (CompoundBatchNorm1d, nn.BatchNorm1d, (4, 5, 3)),
        (CompoundBatchNorm2d, nn.BatchNorm2d, (4, 5, 3, 3)),
        (CompoundBatchNorm3d, nn.BatchNorm3d, (4, 5, 3, 3, 2)),
    ],
)
@pytest.mark.parametrize("affine", [True, False])
def test_a_layer_becomes_torchs_of_the_same_dimensions(
    layer: type[CompoundBatchNorm], kind: type[nn.Module], shape: tuple[int, ...], affine: bool
) -> None:
    norm = layer(5, 3, affine=affine, eps=1e-3, reading=plain())
    norm.running_mean.copy_(torch.randn(5))
    norm.running_var.copy_(torch.rand(5) + 0.5)
    folded = fold_batch_norm(norm.eval())
    assert type(folded) is kind
    x = torch.randn(shape)
    torch.testing.assert_close(folded(x), norm(x))


def test_the_layers_own_relu_is_kept() -> None:
    norm = CompoundBatchNorm2d(5, 3, activation="relu").eval()
    x = torch.randn(4, 5, 3, 3)
    folded = fold_batch_norm(norm)
    assert [type(module) for module in folded.children()] == [nn.BatchNorm2d, nn.ReLU]
    torch.testing.assert_close(folded(x), norm(x))


def test_a_sync_batch_norm_folds_back_to_one() -> None:
    norm = convert_batch_norm(nn.SyncBatchNorm(5)).eval()
    assert isinstance(fold_batch_norm(norm), nn.SyncBatchNorm)


@pytest.mark.parametrize("relu", [None, "relu"])
def test_components_that_never_parted_fold_to_their_mean_affine_set(relu: Literal["relu"] | None) -> None:
    torch.manual_seed(0)
    norm = CompoundBatchNorm2d(6, 4, activation=relu, reading=plain())
    with torch.no_grad():
        for parameter in norm.parameters():
            nn.init.normal_(parameter)
        norm.running_mean.copy_(torch.randn(6).expand(4, 6))
        norm.running_var.copy_(torch.rand(6).add(0.5).expand(4, 6))
        norm.prior.copy_(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    model = nn.Sequential(norm.eval())
    x = torch.randn(3, 6, 4, 4)
    expected = model(x)
    assert not any(isinstance(module, CompoundBatchNorm) for module in fold_batch_norm(model).modules())
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_a_layer_with_components_that_differ_at_all_is_left_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    norm = CompoundBatchNorm2d(5, 3, reading=plain()).eval()
    with torch.no_grad():
        getattr(norm, name)[1, 2] += 1e-5
    model = nn.Sequential(norm, CompoundBatchNorm2d(5, 3, reading=plain())).eval()
    with caplog.at_level(logging.INFO):
        fold_batch_norm(model)
    assert model[0] is norm
    assert isinstance(model[1], nn.BatchNorm2d)
    assert "folded 1 of 2" in caplog.text


def test_frozen_parameters_stay_frozen() -> None:
    norm = CompoundBatchNorm2d(5, 3).eval().requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in fold_batch_norm(norm).parameters())


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="must be in eval mode to be folded, got 0 in training mode"):
        fold_batch_norm(nn.Sequential(CompoundBatchNorm2d(5)))
