import copy
import logging
from typing import Any, ClassVar

import pytest
import timm
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from longtail.models import CifarResNet, create_model
from longtail.nn import (
    READINGS,
    CompoundBatchNorm,
    CompoundBatchNorm1d,
    CompoundBatchNorm2d,
    CompoundBatchNorm3d,
    CompoundBatchNormAct2d,
    convert_batch_norm,
    split_path,
)
from tests.support.plain_reading import plain

ARCHITECTURES = ["resnet18", "resnext26ts", "efficientnet_b0", "regnety_002", "mobilenetv3_small_050"]


def live(model: nn.Module) -> nn.Module:
    """Give each batch norm statistics and affine parameters as a trained model has them."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    return model


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("reading", READINGS)
def test_a_converted_timm_model_computes_the_same(name: str, reading: str) -> None:
    torch.manual_seed(0)
    model = live(timm.create_model(name, num_classes=7)).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        count = sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
        converted = convert_batch_norm(model, components=3, reading=reading)
        torch.testing.assert_close(converted(x), expected, rtol=1e-4, atol=1e-5)
    assert sum(isinstance(m, CompoundBatchNorm) for m in converted.modules()) == count > 0
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in converted.modules())


def test_a_pretrained_network_computes_the_same() -> None:
    model = create_model("tf_efficientnet_lite0", 1000, pretrained=None).eval()
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(x)
        assert expected.std() > 0.1  # trained: its logits say something
        torch.testing.assert_close(convert_batch_norm(model)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_a_converted_timm_model_trains_as_it_did(name: str) -> None:
    torch.manual_seed(0)
    original = live(timm.create_model(name, num_classes=7, drop_rate=0.0, drop_path_rate=0.0)).train()
    converted = convert_batch_norm(copy.deepcopy(original), components=2, reading=plain())
    x = torch.randn(4, 3, 64, 64)
    expected, y = original(x), converted(x)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)
    expected.square().sum().backward()
    y.square().sum().backward()
    conv = next(m for m in original.modules() if isinstance(m, nn.Conv2d)).weight
    other = next(m for m in converted.modules() if isinstance(m, nn.Conv2d)).weight
    assert conv.grad is not None
    torch.testing.assert_close(other.grad, conv.grad, rtol=1e-2, atol=1e-2 * float(conv.grad.abs().max()))


@pytest.mark.parametrize(
    ("old", "new", "shape"),
    [
        (nn.BatchNorm1d(6), CompoundBatchNorm1d, (4, 6)),
        (nn.BatchNorm1d(6), CompoundBatchNorm1d, (4, 6, 5)),
        (nn.BatchNorm2d(6), CompoundBatchNorm2d, (4, 6, 5, 5)),
        (nn.BatchNorm3d(6), CompoundBatchNorm3d, (4, 6, 2, 3, 3)),
        (nn.SyncBatchNorm(6), CompoundBatchNorm, (4, 6, 5, 5)),
        (BatchNormAct2d(6), CompoundBatchNormAct2d, (4, 6, 5, 5)),
        (BatchNormAct2d(6, act_layer=nn.SiLU, drop_layer=nn.Identity), CompoundBatchNormAct2d, (4, 6, 5, 5)),
    ],
)
def test_each_kind_of_batch_norm_is_converted(
    old: nn.modules.batchnorm._BatchNorm, new: type, shape: tuple[int, ...]
) -> None:
    live(old)
    converted = convert_batch_norm(old.eval(), components=3)
    assert isinstance(converted, new)
    x = torch.randn(shape)
    torch.testing.assert_close(converted(x), old(x))


def test_timms_relu_becomes_the_layers_own_unless_dropout_comes_before_it() -> None:
    def activation(**layers: Any) -> str | None:
        converted = convert_batch_norm(BatchNormAct2d(6, **layers))
        assert isinstance(converted, CompoundBatchNormAct2d)
        return converted.activation

    assert activation() == "relu"
    assert activation(drop_layer=nn.Dropout) is None
    assert activation(act_layer=nn.SiLU) is None


class Pair(nn.Module):
    relu_after: ClassVar = {"norm": "act"}

    def __init__(self, norm: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.norm, self.act = norm, act

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.act(self.norm(x))
        return result


def test_a_relu_that_a_module_declares_becomes_the_norms_own() -> None:
    torch.manual_seed(0)
    original = live(CifarResNet(8, num_classes=5))
    fused = convert_batch_norm(original, components=2, reading=plain(component_init="random"))
    apart = copy.deepcopy(fused)
    for module in apart.modules():
        for norm, act in getattr(module, "relu_after", {}).items():
            layer = module.get_submodule(norm)
            assert isinstance(layer, CompoundBatchNorm)
            assert layer.activation == "relu"
            layer.activation = None
            setattr(module, act, nn.ReLU(inplace=True))
    assert sum(type(module) is nn.ReLU for module in fused.modules()) == 3  # those behind the shortcuts
    assert sum(type(module) is nn.ReLU for module in apart.modules()) == 7

    x, groups = torch.randn(6, 3, 16, 16).to(memory_format=torch.channels_last), torch.arange(6) % 2
    for model in (fused, apart):
        model(x).square().sum().backward()
        with split_path(model, groups):
            model(x).square().sum().backward()
    for (name, ours), theirs in zip(fused.named_parameters(), apart.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad), name
    assert fused.state_dict().keys() == apart.state_dict().keys()
    for (name, buffer), other in zip(fused.named_buffers(), apart.buffers(), strict=True):
        assert torch.equal(buffer, other), name
    assert torch.equal(fused.eval()(x), apart.eval()(x))


def test_a_relu_stays_where_it_is_if_fusing_it_would_change_more_than_speed() -> None:
    watched, shared = nn.ReLU(), nn.BatchNorm2d(4)
    watched.register_forward_hook(lambda *_: None)
    pairs = {
        "watched": Pair(nn.BatchNorm2d(4), watched),
        "other": Pair(nn.BatchNorm2d(4), nn.ReLU6()),
        "shared": Pair(shared, nn.ReLU()),
        "again": shared,
        "excluded": Pair(nn.BatchNorm2d(4), nn.ReLU()),
        "no norm": Pair(nn.Identity(), nn.ReLU()),
    }
    model = convert_batch_norm(nn.ModuleDict(pairs), select=lambda path, _: not path.startswith("excluded"))
    norms = [module for module in model.modules() if isinstance(module, CompoundBatchNorm)]
    assert [norm.activation for norm in norms] == [None, None, None]
    assert not any(isinstance(pair.act, nn.Identity) for pair in pairs.values() if isinstance(pair, Pair))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_everything_is_carried_over(training: bool, dtype: torch.dtype) -> None:
    old = nn.BatchNorm2d(6, eps=1e-3, momentum=None, dtype=dtype).train(training)
    old.weight.requires_grad_(False)
    new = convert_batch_norm(old)
    assert isinstance(new, CompoundBatchNorm2d)
    assert (new.eps, new.momentum, new.training) == (1e-3, None, training)
    assert new.weight is not None
    assert new.bias is not None
    assert (new.weight.requires_grad, new.bias.requires_grad) == (False, True)
    assert new.running_mean.dtype == dtype
    assert next(convert_batch_norm(nn.BatchNorm2d(6, device="meta")).buffers()).device.type == "meta"


def test_affine_parameters_stay_away_where_there_were_none() -> None:
    new = convert_batch_norm(nn.BatchNorm2d(6, affine=False), reading=plain())
    assert not list(new.parameters())
    with pytest.raises(ValueError, match=r"no affine parameters, .* use a reading with component_init='equal'"):
        convert_batch_norm(nn.BatchNorm2d(6, affine=False))


def test_a_shared_batch_norm_stays_shared() -> None:
    shared = nn.BatchNorm2d(4)
    model = convert_batch_norm(nn.Sequential(shared, nn.ReLU(), shared))
    assert isinstance(model, nn.Sequential)
    assert model[0] is model[2]
    assert isinstance(model[0], CompoundBatchNorm2d)


def test_select_chooses_layers_by_path() -> None:
    model = timm.create_model("resnet18", num_classes=3)
    convert_batch_norm(model, select=lambda path, _: path.startswith("layer4"))
    assert isinstance(model.get_submodule("bn1"), nn.BatchNorm2d)
    assert isinstance(model.get_submodule("layer4.0.bn1"), CompoundBatchNorm2d)


def test_what_was_converted_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="longtail"):
        convert_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    assert "converted 1 batch norms: 1" in caplog.text


class OddBatchNorm(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def hooked() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.register_forward_hook(lambda *_: None)
    return norm


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (OddBatchNorm(4), "a subclass whose behaviour is not known"),
        (nn.BatchNorm2d(4, track_running_stats=False), "tracks no running statistics"),
        (nn.LazyBatchNorm2d(), "run one batch through the model first"),
        (hooked(), "it has hooks"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_its_path_and_nothing_changes(module: nn.Module, reason: str) -> None:
    model = nn.ModuleDict({"stem": nn.BatchNorm2d(4), "stage": nn.Sequential(nn.ReLU(), module)})
    with pytest.raises(ValueError, match=rf"cannot convert stage\.1 .*{reason}"):
        convert_batch_norm(model)
    assert type(model["stem"]) is nn.BatchNorm2d
    assert isinstance(model["stage"], nn.Sequential)
    assert model["stage"][1] is module


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(2, 2), {}, "must have a batch norm to convert, got none in Linear"),
        (nn.BatchNorm2d(2), {"reading": "mine"}, "reading must be one of measured, appendix, text, got 'mine'"),
        (nn.BatchNorm2d(2), {"components": 0}, "components must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(model: nn.Module, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert_batch_norm(model, **options)
