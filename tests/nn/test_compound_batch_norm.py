import copy
import dataclasses
import io
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.nn import (
    READINGS,
    CompoundBatchNorm,
    CompoundBatchNorm1d,
    CompoundBatchNorm2d,
    CompoundBatchNorm3d,
    Reading,
    convert_batch_norm,
)
from tests.support.plain_reading import plain

PAIRS = [
    (CompoundBatchNorm1d, nn.BatchNorm1d, (6, 5)),
    (CompoundBatchNorm1d, nn.BatchNorm1d, (6, 5, 7)),
    (CompoundBatchNorm2d, nn.BatchNorm2d, (6, 5, 4, 3)),
    (CompoundBatchNorm3d, nn.BatchNorm3d, (6, 5, 4, 3, 2)),
]


def parted(components: int = 3, channels: int = 5, **options: Any) -> CompoundBatchNorm2d:
    """A layer whose components and affine parameters differ."""
    torch.manual_seed(0)
    names = {field.name for field in dataclasses.fields(Reading)} - {"momentum"}
    fields = {name: options.pop(name) for name in names & options.keys()}
    norm = CompoundBatchNorm2d(channels, components, reading=plain(component_init="random", **fields), **options)
    norm.prior.copy_(torch.rand(components).softmax(0))
    norm.running_var.uniform_(0.5, 2)
    if norm.weight is not None and norm.bias is not None:
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias)
    return norm


@pytest.mark.parametrize(("ours", "torchs", "shape"), PAIRS)
@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_batch_norm_when_there_is_one_component(
    ours: type[CompoundBatchNorm], torchs: Any, shape: tuple[int, ...], momentum: float | None, affine: bool
) -> None:
    torch.manual_seed(0)
    compound = ours(5, 1, momentum=momentum, affine=affine).double()
    batch_norm = torchs(5, momentum=momentum, affine=affine).double()
    if affine:
        nn.init.uniform_(batch_norm.weight)
        nn.init.normal_(batch_norm.bias)
        with torch.no_grad():
            for parameter, other in zip(compound.parameters(), batch_norm.parameters(), strict=True):
                parameter.copy_(other)
    for _ in range(3):
        x = torch.randn(shape, dtype=torch.float64) * 3 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = compound(a), batch_norm(b)
        torch.testing.assert_close(y, expected)
        direction = torch.randn_like(y)
        y.backward(direction)
        expected.backward(direction)
        torch.testing.assert_close(a.grad, b.grad)
        for parameter, other in zip(compound.parameters(), batch_norm.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad[None])
    # Sample variances are kept, as torch keeps them.
    torch.testing.assert_close(compound.running_mean[0], batch_norm.running_mean)
    torch.testing.assert_close(compound.running_var[0], batch_norm.running_var)
    assert compound.num_batches_tracked == batch_norm.num_batches_tracked == 3
    torch.testing.assert_close(compound.eval()(x), batch_norm.eval()(x))


def test_equals_batch_norm_while_the_components_are_equal() -> None:
    compound, batch_norm = CompoundBatchNorm2d(5, 4, reading=plain()), nn.BatchNorm2d(5)
    x = torch.randn(6, 5, 4, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        torch.testing.assert_close(compound(x), batch_norm(x))
    torch.testing.assert_close(compound.running_var, batch_norm.get_buffer("running_var").expand(4, 5))
    torch.testing.assert_close(compound.eval()(x), batch_norm.eval()(x))


@pytest.mark.parametrize("reading", READINGS)
def test_a_new_layer_computes_in_eval_what_a_new_batch_norm_does(reading: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 5, 4, 4) * 2
    norm = CompoundBatchNorm2d(5, 4, reading=reading)
    assert bool(norm.running_mean.any()) == (reading == "measured")
    torch.testing.assert_close(norm.eval()(x), nn.BatchNorm2d(5).eval()(x))


@pytest.mark.parametrize("training", [True, False])
def test_permuting_the_batch_permutes_the_output(training: bool) -> None:
    norm = parted().train(training)
    x = torch.randn(8, 5, 3, 3)
    order = torch.randperm(8)
    torch.testing.assert_close(copy.deepcopy(norm)(x[order]), norm(x)[order])


@pytest.mark.parametrize("training", [True, False])
def test_permuting_the_components_changes_nothing(training: bool) -> None:
    norm = parted().train(training)
    shuffled = copy.deepcopy(norm)
    order = torch.tensor([2, 0, 1])
    for name, tensor in shuffled.state_dict().items():
        if tensor.dim():
            shuffled.state_dict()[name].copy_(norm.state_dict()[name][order])
    x = torch.randn(8, 5, 3, 3)
    torch.testing.assert_close(shuffled(x), norm(x))
    torch.testing.assert_close(shuffled.running_mean, norm.running_mean[order])


def test_eval_does_not_depend_on_the_batch_and_leaves_the_buffers() -> None:
    norm = parted().eval()
    before = copy.deepcopy(norm.state_dict())
    x = torch.randn(8, 5, 3, 3)
    torch.testing.assert_close(norm(x)[2:3], norm(x[2:3]))
    assert norm(x[:0]).shape == (0, 5, 3, 3)
    for name, tensor in norm.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_state_dict_round_trips() -> None:
    norm, other = parted(), CompoundBatchNorm2d(5, 3, reading=plain())
    norm(torch.randn(4, 5, 3, 3))
    assert set(norm.state_dict()) == {"weight", "bias", "prior", "running_mean", "running_var", "num_batches_tracked"}
    file = io.BytesIO()
    torch.save(norm.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(4, 5, 3, 3)
    torch.testing.assert_close(other(x), norm(x))
    torch.testing.assert_close(other.running_var, norm.running_var)


def test_shapes_of_parameters_and_buffers_are_the_papers() -> None:
    norm = CompoundBatchNorm2d(7, 4)
    assert {name: tuple(tensor.shape) for name, tensor in norm.state_dict().items()} == {
        "weight": (4, 7),
        "bias": (4, 7),
        "prior": (4,),
        "running_mean": (4, 7),
        "running_var": (4, 7),
        "num_batches_tracked": (),
    }
    # A _BatchNorm would be replaced by convert_sync_batchnorm, and lose its buffers.
    assert not issubclass(CompoundBatchNorm2d, nn.modules.batchnorm._BatchNorm)
    assert CompoundBatchNorm2d(7, affine=False).weight is None


@pytest.mark.parametrize("statistics", ["batch", "running"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_finite_output_and_gradients(statistics: Any, dtype: torch.dtype) -> None:
    norm = parted(statistics=statistics)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), norm, nn.ReLU(inplace=True))
    x = torch.randn(4, 3, 6, 6)
    with torch.autocast("cpu", dtype=dtype):
        y = model(x)
        assert y.dtype == dtype
        y.square().mean().backward()  # within autocast: the backward pass must not be cast either
    expected = copy.deepcopy(norm).float()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert expected.running_mean.dtype == torch.float32
    with torch.autocast("cpu", dtype=dtype):
        half = model[0](x)
        torch.testing.assert_close(norm.eval()(half), norm.eval()(half.float()).to(dtype), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("statistics", ["batch", "running"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_the_input_does_not_poison_the_buffers_and_warns_once(statistics: Any, value: float) -> None:
    norm = parted(statistics=statistics)
    before = copy.deepcopy(norm.state_dict())
    x = torch.randn(4, 5, 3, 3)
    x[1, 2, 0, 0] = value
    with pytest.warns(UserWarning, match="statistics are left as they were"):
        norm(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        norm(x)
    for name, tensor in norm.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert norm.refused_updates == 2
    norm(x.nan_to_num(0, 0, 0))
    assert norm.num_batches_tracked == 1


def test_a_nan_sample_spoils_no_other_when_the_statistics_are_running() -> None:
    norm = parted(statistics="running")
    x = torch.randn(4, 5, 3, 3)
    clean = copy.deepcopy(norm)(x)
    x[1] = torch.nan
    with pytest.warns(UserWarning, match="NaN or infinity"):
        y = norm(x)
    torch.testing.assert_close(y[[0, 2, 3]], clean[[0, 2, 3]])


def test_refused_updates_of_a_compiled_layer_are_told_by_the_next_change_of_mode() -> None:
    norm = parted()
    compiled = torch.compile(norm, fullgraph=True, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.full((4, 5, 3, 3), torch.nan))
    with pytest.warns(UserWarning, match="NaN or infinity"):
        norm.eval()
    assert torch.isfinite(norm.running_mean).all()


def test_one_sample_trains_with_running_statistics_and_is_refused_with_those_of_the_batch() -> None:
    x = torch.randn(1, 5, 1, 1)
    with pytest.raises(ValueError, match="more than one value a channel"):
        parted()(x)
    norm = parted(statistics="running")
    before = norm.running_mean.clone()
    assert torch.isfinite(norm(x)).all()
    assert torch.equal(norm.running_mean, before)  # one point has no variance, so it moves no component


def test_an_empty_batch_is_refused_in_training_with_batch_statistics() -> None:
    with pytest.raises(ValueError, match="more than one value a channel"):
        parted()(torch.randn(0, 5, 3, 3))
    norm = parted(statistics="running")
    before = copy.deepcopy(norm.state_dict())
    assert norm(torch.randn(0, 5, 3, 3)).shape == (0, 5, 3, 3)
    assert torch.equal(norm.running_mean, before["running_mean"])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (CompoundBatchNorm1d, (4, 5, 3, 3)),
        (CompoundBatchNorm2d, (4, 5)),
        (CompoundBatchNorm2d, (5, 3, 3)),
        (CompoundBatchNorm3d, (4, 5, 3, 3)),
    ],
)
def test_the_wrong_number_of_dimensions_is_refused(layer: type[CompoundBatchNorm], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"-D input, got shape"):
        layer(5)(torch.zeros(shape))


def test_the_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x must be \(N, 5\)"):
        CompoundBatchNorm2d(5)(torch.zeros(2, 6, 3, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"components": 0}, "components must be at least 1, got 0"),
        ({"num_features": 0}, "num_features must be at least 1, got 0"),
        ({"reading": "paper"}, "reading must be one of measured, appendix, text, got 'paper'"),
        ({"momentum": 1.5}, "momentum must be None or between 0 and 1, got 1.5"),
        ({"eps": -1.0}, "eps must be zero or more"),
        ({"activation": "gelu"}, "activation must be None or 'relu', got 'gelu'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompoundBatchNorm2d(**({"num_features": 5} | arguments))


def test_an_in_place_activation_behind_the_layer_is_right() -> None:
    x = torch.randn(4, 5, 3, 3).to(memory_format=torch.channels_last)

    def gradient(inplace: bool) -> Tensor | None:
        given = x.clone().requires_grad_()
        nn.Sequential(parted(), nn.ReLU(inplace=inplace))(given).square().sum().backward()
        return given.grad

    torch.testing.assert_close(gradient(inplace=True), gradient(inplace=False))


def test_the_layer_prints_its_arguments() -> None:
    assert repr(CompoundBatchNorm2d(5, 2, affine=False, activation="relu")) == (
        "CompoundBatchNorm2d(5, components=2, eps=1e-05, momentum=0.1, reading='measured', affine=False, "
        "activation='relu')"
    )
    assert "reading=Reading(statistics='updated', " in repr(CompoundBatchNorm2d(5, reading=plain(statistics="updated")))


def test_the_momentum_is_that_of_the_reading_unless_it_is_given() -> None:
    reading = plain(momentum=0.9)
    assert [CompoundBatchNorm2d(5, reading=each).momentum for each in ("measured", "text", reading)] == [0.1, 0.1, 0.9]
    assert CompoundBatchNorm2d(5, momentum=0.3, reading=reading).momentum == 0.3
    assert CompoundBatchNorm2d(5, momentum=None, reading=reading).momentum is None


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 3))


def _train(model: nn.Module, steps: int = 20) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        images, target = torch.randn(16, 3, 6, 6, generator=generator), torch.arange(16) % 3
        loss = nn.functional.cross_entropy(model(images + target.view(-1, 1, 1, 1)), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("components", [1, 4])
def test_equal_components_with_scaled_gradients_learn_as_batch_norm_does(components: int) -> None:
    network = _network()
    compound = convert_batch_norm(copy.deepcopy(network), components, reading=plain(scale_affine=True))
    assert _train(compound) == pytest.approx(_train(network), rel=1e-3)
    assert isinstance(compound, nn.Sequential)
    norm, reference = compound[1], network[1]
    for name in ("weight", "bias"):
        every = getattr(norm, name)
        torch.testing.assert_close(every, getattr(reference, name).expand_as(every), rtol=1e-3, atol=1e-4)


def test_without_scaled_gradients_they_fall_behind() -> None:
    network = _network()
    compound = convert_batch_norm(copy.deepcopy(network), 4, reading=plain())
    assert _train(compound) != pytest.approx(_train(network), rel=1e-2)


def test_scaling_gradients_leaves_the_output_as_it_is() -> None:
    torch.manual_seed(0)
    usual = CompoundBatchNorm2d(4, 3, reading=plain(component_init="random"))
    scaled = CompoundBatchNorm2d(4, 3, reading=plain(scale_affine=True))
    scaled.load_state_dict(usual.state_dict())
    x = torch.randn(8, 4, 5, 5)
    assert torch.equal(scaled(x), usual(x))
    for layer in (usual, scaled):
        layer(x).exp().sum().backward()
    assert usual.weight is not None
    assert scaled.weight is not None
    assert usual.weight.grad is not None
    torch.testing.assert_close(scaled.weight.grad, 3 * usual.weight.grad)
