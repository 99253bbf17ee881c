from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longtail.nn.backends import eager
from longtail.nn.functional import compound_batch_norm, responsibilities, split_batch_norm
from longtail.nn.functional.naive import naive_compound_batch_norm

STATISTICS = ["batch", "running", "updated"]
SHAPES = [(4, 3, 5, 5), (63, 2, 1, 1), (2, 50, 4, 3), (1, 5, 6, 6)]


def problem(shape: tuple[int, ...], components: int = 3, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(sum(shape))
    prior = torch.rand(components, generator=generator, dtype=dtype) + 0.5
    rows = (components, shape[1])
    return {
        "x": (torch.randn(shape, generator=generator, dtype=dtype) * 2 + 1).requires_grad_(),
        "prior": prior / prior.sum(),
        "mean": torch.randn(rows, generator=generator, dtype=dtype),
        "var": torch.rand(rows, generator=generator, dtype=dtype) + 0.5,
        "weight": (torch.rand(rows, generator=generator, dtype=dtype) + 0.5).requires_grad_(),
        "bias": torch.randn(rows, generator=generator, dtype=dtype).requires_grad_(),
    }


def gradients(y: Tensor, given: dict[str, Any]) -> tuple[Tensor, ...]:
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=y.dtype)
    return torch.autograd.grad(y, [given["x"], given["weight"], given["bias"]], direction)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("statistics", "running_variance"),
    [
        ("batch", "sample"),
        ("batch", "population"),
        ("running", "sample"),
        ("running", "population"),
        ("updated", "population"),
    ],
)
@pytest.mark.parametrize("detach", [False, True])
def test_equals_the_papers_form_written_naively(
    shape: tuple[int, ...], statistics: Any, detach: bool, running_variance: Any
) -> None:
    given = problem(shape)
    points = given["x"][:, 0].numel()
    factor = points / (points - 1) if running_variance == "sample" else 1.0
    expected, batch = naive_compound_batch_norm(
        *given.values(), eps=1e-5, statistics=statistics, momentum=0.3, detach=detach
    )
    y, new = compound_batch_norm(
        **given,
        training=True,
        statistics=statistics,
        momentum=0.3,
        detach_responsibilities=detach,
        min_mass=0.0,
        running_variance=running_variance,
    )
    torch.testing.assert_close(y, expected)
    for ours, theirs in zip(gradients(y, given), gradients(expected, given), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(new.prior, torch.lerp(given["prior"], batch.mass / points, 0.3).detach())
    torch.testing.assert_close(new.mean, torch.lerp(given["mean"], batch.mean, 0.3).detach())
    torch.testing.assert_close(new.var, torch.lerp(given["var"], batch.var * factor, 0.3).detach())


def test_updated_statistics_normalise_with_the_variance_that_is_accumulated() -> None:
    given = problem((4, 3, 5, 5))
    y, new = compound_batch_norm(**given, training=True, statistics="updated", momentum=0.3)
    w = responsibilities(given["x"].movedim(1, -1).flatten(0, -2), *list(given.values())[1:4], eps=1e-5)
    standard = (given["x"].movedim(1, -1)[..., None, :] - new.mean) * (new.var + 1e-5).rsqrt()
    branches = standard * given["weight"] + given["bias"]
    expected = (w.view(4, 5, 5, 3)[..., None] * branches).sum(-2).movedim(-1, 1)
    torch.testing.assert_close(y, expected)


def test_with_no_least_mass_the_prior_follows_the_mass_and_zero_by_zero_keeps_the_rest() -> None:
    given = problem((8, 3, 4, 4), components=3)
    given["mean"][1] = 1e4  # nothing is near it: its responsibilities are exactly 0
    for statistics in ("running", "updated"):
        y, new = compound_batch_norm(**given, training=True, statistics=statistics, momentum=0.5, min_mass=0.0)
        assert torch.isfinite(y).all()
        torch.testing.assert_close(new.prior[1], given["prior"][1] / 2)
        torch.testing.assert_close(new.prior.sum(), torch.ones((), dtype=torch.float64))
        assert torch.equal(new.mean[1], given["mean"][1])
        assert torch.equal(new.var[1], given["var"][1])
        assert all(torch.isfinite(gradient).all() for gradient in gradients(y, given))


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_split_path_equals_one_batch_norm_a_group(statistics: Any) -> None:
    given = problem((6, 4, 3, 3))
    groups = torch.tensor([0, 2, 2, 0, 2, 2])
    y, new = split_batch_norm(given.pop("x"), groups, **given, statistics=statistics, momentum=0.1)
    given["x"] = problem((6, 4, 3, 3))["x"]
    for j in (0, 2):
        mean, var = given["mean"][j].clone(), given["var"][j].clone()
        affine = given["weight"][j], given["bias"][j]
        inputs = given["x"][groups == j]
        training = statistics == "batch"
        expected = torch.nn.functional.batch_norm(inputs, mean, var, *affine, training=training, momentum=0.1)
        torch.testing.assert_close(y[groups == j], expected)
        torch.nn.functional.batch_norm(inputs, mean, var, training=True, momentum=0.0 if training else 0.1)
        torch.testing.assert_close(new.mean[j], mean)
        torch.testing.assert_close(new.var[j], var)
    assert torch.equal(new.mean[1], given["mean"][1])
    assert torch.equal(new.var[1], given["var"][1])
    assert torch.equal(new.prior, given["prior"])


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("training", [True, False])
def test_gradcheck(statistics: Any, training: bool) -> None:
    given = problem((3, 2, 2, 3))
    fixed = {name: given[name] for name in ("prior", "mean", "var")}

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        options: dict[str, Any] = {"training": training, "statistics": statistics, "detach_responsibilities": False}
        return compound_batch_norm(x, **fixed, weight=weight, bias=bias, **options)[0]

    assert torch.autograd.gradcheck(function, (given["x"], given["weight"], given["bias"]))


@pytest.mark.parametrize("statistics", STATISTICS)
def test_gradcheck_of_the_split_path(statistics: Any) -> None:
    given = problem((6, 2, 2, 1))
    fixed = {name: given[name] for name in ("prior", "mean", "var")}
    groups = torch.tensor([0, 0, 1, 1, 2, 1])

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return split_batch_norm(x, groups, **fixed, weight=weight, bias=bias, statistics=statistics)[0]

    assert torch.autograd.gradcheck(function, (given["x"], given["weight"], given["bias"]))


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem((7, 5, 4, 4))
    y, new = compound_batch_norm(**given, training=True, detach_responsibilities=False)
    whole = gradients(y, given)
    monkeypatch.setattr(eager, "_BLOCK_ELEMENTS", 33)
    y_blocks, new_blocks = compound_batch_norm(**given, training=True, detach_responsibilities=False)
    torch.testing.assert_close(y_blocks, y)
    torch.testing.assert_close(new_blocks.var, new.var)
    torch.testing.assert_close(gradients(y_blocks, given), whole)


@pytest.mark.parametrize(
    ("memory_format", "shape"),
    [
        (torch.contiguous_format, (4, 3, 5, 6)),
        (torch.channels_last, (4, 3, 5, 6)),
        (torch.channels_last_3d, (4, 3, 5, 6, 2)),
    ],
)
def test_layout_of_output_and_gradient_is_the_inputs(
    memory_format: torch.memory_format, shape: tuple[int, ...]
) -> None:
    given = problem(shape)
    plain = compound_batch_norm(**given, training=True)[0]
    x = given.pop("x").detach().contiguous(memory_format=memory_format).requires_grad_()
    y = compound_batch_norm(x, **given, training=True)[0]
    assert y.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(y, plain, check_stride=False)
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=memory_format)


def test_a_strided_input_is_taken() -> None:
    given = problem((4, 3, 8, 8))
    x = given.pop("x").detach()
    expected = compound_batch_norm(x[:, :, ::2, 1:].contiguous(), **given, training=True)[0]
    torch.testing.assert_close(compound_batch_norm(x[:, :, ::2, 1:], **given, training=True)[0], expected)


def test_backward_keeps_the_input_and_the_weights_and_no_more() -> None:
    components, shape = 4, (8, 16, 32, 32)
    given = problem(shape, components, torch.float32)
    points = given["x"].numel() // shape[1]
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        compound_batch_norm(**given, training=True)
    small = 16 * components * shape[1]
    assert sum(saved.values()) <= given["x"].numel() + points * components + small


class LargestTensor(TorchDispatchMode):
    """Watches every operation for the size of what it makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("block", [1 << 10, 1 << 30])
def test_nothing_of_size_points_times_components_times_channels_is_made(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager, "_BLOCK_ELEMENTS", block)
    given = problem((8, 16, 8, 8), components=8, dtype=torch.float32)
    with LargestTensor() as largest:
        y, _ = compound_batch_norm(**given, training=True, detach_responsibilities=False)
        y.backward(torch.ones_like(y))
    assert largest.elements <= given["x"].numel()


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    given = problem((3, 2, 2, 2))
    y, _ = compound_batch_norm(**given, training=True)
    (grad,) = torch.autograd.grad(y.square().sum(), given["x"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_a_component_without_mass_keeps_its_statistics_and_prior() -> None:
    given = problem((8, 3, 4, 4), components=3)
    given["mean"][1] = 1e4  # nothing is near it
    y, new = compound_batch_norm(**given, training=True, momentum=0.5)
    assert torch.isfinite(y).all()
    for name in ("prior", "mean", "var"):
        assert torch.equal(getattr(new, name)[1], given[name][1])
        assert not torch.equal(getattr(new, name)[0], given[name][0])
    torch.testing.assert_close(new.prior.sum(), torch.ones((), dtype=torch.float64))
    assert all(torch.isfinite(gradient).all() for gradient in gradients(y, given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e4])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_any_scale_gives_finite_output_and_gradients(dtype: torch.dtype, scale: float, statistics: Any) -> None:
    given = problem((4, 6, 3, 3), dtype=torch.float32)
    given["x"] = (given["x"].detach() * scale).clamp(-6e4, 6e4).to(dtype).requires_grad_()
    y, new = compound_batch_norm(**given, training=True, statistics=statistics)
    assert y.dtype == dtype
    assert torch.isfinite(torch.cat([new.mean, new.var])).all()
    for gradient in gradients(y, given):
        assert torch.isfinite(gradient).all()
    if statistics == "batch":
        assert torch.isfinite(y).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 5, 2, 2)}, r"x must be \(N, 3\) or \(N, 3, ...\), got shape \(4, 5, 2, 2\)"),
        ({"x": torch.zeros(3)}, "x must be"),
        ({"x": torch.zeros(4, 3, dtype=torch.long)}, "floating-point tensor, got torch.int64"),
        ({"prior": torch.ones(2)}, r"prior must be \(3,\)"),
        ({"x": torch.zeros(1, 3, 1, 1)}, "more than one value a channel"),
        ({"x": torch.zeros(0, 3, 2, 2)}, "more than one value a channel"),
    ],
)
def test_wrong_shapes_are_refused(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compound_batch_norm(**(problem((4, 3, 2, 2)) | change), training=True)


def test_groups_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one group number a sample, \(4,\), got shape \(3,\)"):
        split_batch_norm(groups=torch.zeros(3, dtype=torch.long), **problem((4, 3, 2, 2)))
