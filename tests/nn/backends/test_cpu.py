"""The compiled kernel in float32 against the eager backend in float64: values, gradients and statistics."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from longtail.nn import CompoundBatchNorm2d
from longtail.nn.backends.base import Mixture, Options
from longtail.nn.backends.choose_backend import choose_backend
from longtail.nn.backends.cpu.backend import CpuBackend
from longtail.nn.backends.cpu.library import load
from longtail.nn.backends.cpu.mixture_norm import mixture_norm
from longtail.nn.backends.eager import EagerBackend
from longtail.nn.functional import MixtureStatistics, compound_batch_norm, split_batch_norm
from tests.support.plain_reading import plain

pytestmark = pytest.mark.skipif(load() is None, reason="the kernels are turned off or were not built")

SHAPES = [
    (1, 3, 5, 5),
    (63, 50, 1, 1),
    (63, 3, 2, 2),
    (2, 2048, 2, 3),
    (9, 16, 9, 7),
    (3, 64, 17, 1),
    (70, 24),
    (5, 40, 3),
]
LAYOUTS = ["channels_last", "contiguous"]
STATISTICS = ["batch", "running", "updated"]


def problem(shape: tuple[int, ...], components: int, scale: float = 1.0) -> dict[str, Any]:
    """Components near enough to each other, for the number of channels, that points are shared among them."""
    generator = torch.Generator().manual_seed(sum(shape) + components)
    rows = (components, shape[1])
    spread = shape[1] ** -0.5

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(rows, generator=generator) * (high - low) + low

    prior = torch.rand(components, generator=generator) + 0.5
    return {
        "x": (torch.randn(shape, generator=generator) * 1.5 + 0.5) * scale,
        "prior": prior / prior.sum(),
        "mean": (torch.randn(rows, generator=generator) * spread + 0.5) * scale,
        "var": (2 + uniform(-1, 1) * spread) * scale**2,
        "weight": uniform(0.5, 1.5),
        "bias": torch.randn(rows, generator=generator),
    }


def lay_out(x: Tensor, layout: str) -> Tensor:
    if layout == "channels_last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x.contiguous()


def _normalise(given: dict[str, Any], dtype: torch.dtype, **options: Any) -> tuple[Tensor, MixtureStatistics]:
    tensors = {name: tensor.to(dtype) for name, tensor in given.items() if name != "groups"}
    groups = {"groups": given["groups"]} if "groups" in given else {}
    return split_batch_norm(**groups, **tensors, **options) if groups else compound_batch_norm(**tensors, **options)


def run(given: dict[str, Any], layout: str, dtype: torch.dtype, **options: Any) -> dict[str, Tensor]:
    """Everything that comes of a step, by the kernel in float32 and by the eager path in float64."""
    tensors = {name: tensor.to(dtype, copy=True) for name, tensor in given.items() if name != "groups"}
    x = lay_out(tensors.pop("x"), layout).requires_grad_()
    weight, bias = tensors["weight"].requires_grad_(), tensors["bias"].requires_grad_()
    if "groups" in given:
        y, new = split_batch_norm(x, given["groups"], **tensors, **options)
    else:
        y, new = compound_batch_norm(x, **tensors, **options)
    node: Any = y.grad_fn
    assert node.backend is (CpuBackend if dtype == torch.float32 else EagerBackend)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    y.backward(direction)
    assert x.grad is not None
    assert y.stride() == x.grad.stride() == x.stride()
    gradients = {"gradient of x": x.grad, "gradient of weight": weight.grad, "gradient of bias": bias.grad}
    results = {"y": y.detach(), "prior": new.prior, "mean": new.mean, "var": new.var, **gradients}
    return {name: tensor for name, tensor in results.items() if tensor is not None}


def assert_equal(given: dict[str, Any], layout: str = "channels_last", tolerance: float = 1e-4, **options: Any) -> None:
    ours = run(given, layout, torch.float32, **options)
    for name, expected in run(given, layout, torch.float64, **options).items():
        error = (ours[name] - expected).abs().max().item()
        assert error <= tolerance * max(1e-30, expected.abs().max().item()), name


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", [*STATISTICS, "eval"])
def test_equals_the_eager_backend_at_odd_sizes(shape: tuple[int, ...], layout: str, mode: str) -> None:
    options: dict[str, Any] = {
        "training": mode != "eval",
        "statistics": "batch" if mode == "eval" else mode,
        "momentum": 0.3,
        "detach_responsibilities": False,
    }
    assert_equal(problem(shape, 3), layout, **options)


@pytest.mark.parametrize("components", range(1, 9))
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("detach", [False, True])
def test_equals_the_eager_backend_for_each_number_of_components(components: int, statistics: str, detach: bool) -> None:
    given = problem((13, 10, 3, 3), components)
    assert_equal(given, training=True, statistics=statistics, detach_responsibilities=detach)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("min_mass", [0.0, 2.0])
@pytest.mark.parametrize("running_variance", ["sample", "population"])
def test_accumulates_as_the_eager_backend_does(statistics: str, min_mass: float, running_variance: str) -> None:
    given = problem((9, 16, 5, 5), 4)
    given["mean"][2] = 1e3  # nothing is near it
    options: dict[str, Any] = {"statistics": statistics, "min_mass": min_mass, "running_variance": running_variance}
    assert_equal(given, training=True, momentum=0.3, **options)
    given["groups"] = torch.arange(9) % 3
    assert_equal(given, momentum=0.3, **options)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(7, 16, 4, 4), (33, 5, 1, 1), (6, 3, 40, 5)])
def test_split_path_equals_the_eager_backend_with_groups_that_are_empty(
    shape: tuple[int, ...], layout: str, statistics: str
) -> None:
    given = problem(shape, 4)
    given["groups"] = torch.tensor([3, 0, 0])[torch.arange(shape[0]) % 3]
    assert_equal(given, layout, statistics=statistics, momentum=0.3)


def test_a_group_that_does_not_exist_gives_zeros_as_in_the_eager_backend() -> None:
    given = problem((4, 8, 3, 3), 2)
    given["groups"] = torch.tensor([0, 5, 1, -1])
    assert_equal(given)
    assert not run(given, "channels_last", torch.float32)["y"][1].any()


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("scale", [1e4, 1e-6])
def test_equals_the_eager_backend_at_any_scale(scale: float, statistics: str) -> None:
    given = problem((9, 16, 5, 5), 4, scale)
    assert_equal(given, training=True, statistics=statistics, eps=1e-5 * scale**2)


def test_a_small_variance_beside_a_large_mean_is_kept() -> None:
    given = problem((16, 16, 8, 8), 2)
    given["x"] += 1e4
    given["mean"] += 1e4
    assert_equal(given, training=True, tolerance=2e-3, momentum=1.0)


@pytest.mark.parametrize("deviations", [100.0, 1000.0])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("backend", [CpuBackend, EagerBackend])
def test_the_variance_of_a_batch_far_from_the_running_mean_is_kept(
    deviations: float, components: int, split: bool, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend is EagerBackend:
        monkeypatch.setattr("longtail.nn.backends.cpu.backend.takes", lambda *_: False)
    given = problem((16, 8, 12, 12), components)
    given["x"] += deviations * given["var"].max().sqrt()
    if split:
        given["groups"] = torch.arange(16) % components
    options: dict[str, Any] = {"statistics": "running", "momentum": 1.0} | ({} if split else {"training": True})
    y, new = _normalise(given, torch.float32, **options)
    assert y.grad_fn is None
    _, exact = _normalise(given, torch.float64, **options)
    moved = (exact.var != given["var"]).all(1)
    assert moved.any()
    torch.testing.assert_close(new.var[moved].double(), exact.var[moved], rtol=1e-3, atol=0)


def test_a_component_without_mass_keeps_its_statistics() -> None:
    given = problem((9, 16, 5, 5), 3)
    given["mean"][1] = 1e3
    assert_equal(given, training=True, detach_responsibilities=False)
    assert torch.equal(run(given, "contiguous", torch.float32, training=True)["mean"][1], given["mean"][1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nan_and_infinity_stay_in_their_rows_and_out_of_the_statistics(layout: str) -> None:
    given = problem((6, 16, 4, 4), 3)
    clean = run(given, layout, torch.float32, training=True, statistics="running")["y"]
    given["x"][1, 3, 2, 2] = torch.nan
    given["x"][4, 5, 0, 1] = torch.inf
    found = run(given, layout, torch.float32, training=True, statistics="running")
    spoilt = torch.zeros(6, 4, 4, dtype=torch.bool)
    spoilt[1, 2, 2] = spoilt[4, 0, 1] = True
    assert torch.equal(found["y"].isnan().all(1), spoilt)
    assert torch.equal(found["y"].isnan().any(1), spoilt)
    torch.testing.assert_close(found["y"].movedim(1, -1)[~spoilt], clean.movedim(1, -1)[~spoilt])
    for name in ("prior", "mean", "var"):
        assert torch.equal(found[name], given[name])


def test_nan_spoils_the_whole_batch_where_its_statistics_normalise() -> None:
    given = problem((6, 16, 20, 20), 3)
    given["x"][1, 3, 2, 3] = torch.nan
    assert run(given, "channels_last", torch.float32, training=True)["y"].isnan().all()


def test_inputs_and_gradients_of_any_strides_are_taken() -> None:
    given = problem((4, 8, 10, 10), 3)
    statistics = {name: given[name] for name in ("prior", "mean", "var")}
    whole = given["x"].requires_grad_()
    expected = compound_batch_norm(whole[:, :, ::2, 1:].contiguous(), **statistics, training=True)[0]
    y = compound_batch_norm(whole[:, :, ::2, 1:], **statistics, training=True)[0]
    torch.testing.assert_close(y, expected)
    for direction in (
        torch.randn(4, 8, 5, 9).to(memory_format=torch.channels_last),
        torch.randn(1).expand(4, 8, 5, 9),
        torch.randn(4, 8, 9, 5).mT,
    ):
        ours, theirs = (torch.autograd.grad(out, whole, direction, retain_graph=True)[0] for out in (y, expected))
        torch.testing.assert_close(ours, theirs)


def test_frozen_parameters_and_inputs_get_no_gradient_and_the_rest_the_same() -> None:
    given = problem((4, 8, 5, 5), 3)
    full = run(given, "channels_last", torch.float32, training=True)
    weight = given.pop("weight").requires_grad_()
    y, _ = compound_batch_norm(**given, weight=weight, training=True)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
    y.backward(direction)
    torch.testing.assert_close(weight.grad, full["gradient of weight"])


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.usefixtures("three_threads")
def test_several_threads_give_the_same(layout: str, statistics: str) -> None:
    given = problem((31, 24, 15, 13), 4)
    assert_equal(given, layout, training=True, statistics=statistics)
    assert_equal(given | {"groups": torch.arange(31) % 4}, layout, statistics=statistics)


def test_a_layer_updates_its_buffers_in_place_as_the_pure_function_says() -> None:
    torch.manual_seed(0)
    norm = CompoundBatchNorm2d(8, 3, reading=plain(component_init="random"), affine=False, momentum=None)
    for step in range(1, 4):
        x = torch.randn(6, 8, 4, 4)
        old = [norm.prior.clone(), norm.running_mean.clone(), norm.running_var.clone()]
        version = norm.running_mean._version
        expected: MixtureStatistics = compound_batch_norm(x, *old, training=True, momentum=1 / step)[1]
        norm(x)
        assert norm.running_mean._version > version
        torch.testing.assert_close((norm.prior, norm.running_mean, norm.running_var), expected[:3])
        assert norm.num_batches_tracked == step


EVAL = Options(False, "running", 1e-5, True, 2.0, True)


def chosen(x: Tensor, components: int = 3, dtype: torch.dtype = torch.float32) -> Any:
    rows = torch.zeros(components, x.shape[1], dtype=dtype)
    return choose_backend(x, Mixture(rows[:, 0], rows, rows, rows, None), EVAL)


def test_what_there_is_no_kernel_for_takes_the_eager_backend() -> None:
    x = torch.zeros(2, 4, 3, 3)
    assert chosen(x) is CpuBackend
    assert chosen(x, components=8) is CpuBackend
    for other in (x.double(), x.bfloat16(), x[:0], x.to("meta")):
        assert chosen(other) is EagerBackend
    assert chosen(x, components=9) is EagerBackend
    assert chosen(x, dtype=torch.float64) is EagerBackend


@pytest.mark.parametrize(
    ("training", "statistics"), [(True, "batch"), (True, "running"), (True, "updated"), (False, "running")]
)
@pytest.mark.parametrize("split", [True, False])
def test_the_operator_is_registered_as_torch_wants_it(training: bool, statistics: str, split: bool) -> None:
    given = problem((4, 8, 3, 3), 2)
    x, prior, mean, var, weight, bias = given.values()
    groups = torch.tensor([0, 1, 1, 0]) if split else None
    affine = weight.requires_grad_(), bias.requires_grad_()
    # The last result is scratch space in part: only its shape can be compared.
    torch.library.opcheck(
        mixture_norm,
        (x.requires_grad_(), groups, prior, mean, var, *affine, torch.tensor(0.1)),
        {
            "training": training or split,
            "statistics": statistics,
            "eps": 1e-5,
            "detach_responsibilities": split,
            "min_mass": 2.0,
            "sample_variance": True,
            "keep": True,
        },
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


class Graphs:
    """A backend that keeps the graphs it is given."""

    def __init__(self) -> None:
        self.code = ""

    def __call__(self, graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        self.code += graph.code
        return graph.forward


def test_a_compiled_graph_has_the_operator_and_an_exported_one_plain_operations() -> None:
    torch._dynamo.reset()
    graphs, norm = Graphs(), CompoundBatchNorm2d(4, 2)
    x = torch.randn(3, 4, 5, 5)
    torch.compile(norm, fullgraph=True, backend=graphs)(x)
    assert "longtail.mixture_norm" in graphs.code
    exported = torch.export.export(nn.Sequential(norm).eval(), (x,))
    assert "longtail" not in exported.graph_module.code


def test_eval_keeps_no_responsibilities() -> None:
    given = problem((4, 16, 8, 8), 4)
    x, prior, mean, var, weight, bias = given.values()
    mixture = Mixture(prior, mean, var, weight, bias)
    _, new, (_, kept, *_) = CpuBackend.forward(x, None, mixture, EVAL, 0.0, keep=False, out=None)
    assert new is None
    assert kept is not None
    assert kept.numel() < x.numel() // 16 * 4
