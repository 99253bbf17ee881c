import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.methods import ERM, CompoundBN
from longtail.nn import (
    CompoundBatchNorm,
    frozen_statistics,
    split_path,
)
from longtail.nn.fit import has_equal_components
from tests.methods.small import (
    BASELINE,
    BOTH,
    CBN,
    COUNTS,
    DPL,
    GROUPS,
    PLAIN,
    SBN,
    TARGET,
    Images,
    images,
    network,
    norms,
)


def method(**settings: Any) -> CompoundBN:
    built = CompoundBN(network(), COUNTS, **{"components": 2, **PLAIN, **settings})
    # Some steps that part the components, so that the two paths differ; the same for all settings.
    optimiser = torch.optim.SGD(built.parameters(), lr=0.05)
    for seed in range(2):
        built(images(len(built.views), seed)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return built


def balanced_softmax(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits + torch.tensor(COUNTS).log(), TARGET)


def through_split(model: nn.Module, x: Tensor) -> Tensor:
    with split_path(model, GROUPS):
        logits: Tensor = model(x)
    return logits


def still_split(model: nn.Module, x: Tensor) -> Tensor:
    before = copy.deepcopy(dict(model.named_buffers()))
    logits = through_split(model, x)
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
    return logits


def dual_path(
    model: nn.Module,
    views: tuple[Tensor, ...],
    *,
    update_on_weak: bool = True,
    split: Callable[[nn.Module, Tensor], Tensor] = through_split,
) -> Tensor:
    """The paper's loss, each path where the paper's algorithm has it, without `no_grad`."""
    weak, strong = views
    if update_on_weak:
        compound_weak, split_weak = model(weak), split(model, weak)
    else:
        with frozen_statistics(model):
            compound_weak, split_weak = model(weak), split(model, weak)
    compound_strong, split_strong = model(strong), split(model, strong)
    similarity = F.cosine_similarity(compound_strong, split_weak.detach()) + F.cosine_similarity(
        split_strong, compound_weak.detach()
    )
    return balanced_softmax(compound_strong) - similarity.mean()


def both_paths(model: nn.Module, views: tuple[Tensor, ...], weight: float = 1.0) -> Tensor:
    compound, split = model(views[0]), through_split(model, views[0])
    return balanced_softmax(compound) + weight * balanced_softmax(split)


Composition = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
ROWS: list[tuple[dict[str, Any], Composition]] = [
    (BASELINE, lambda model, views: balanced_softmax(model(views[0]))),
    (SBN, lambda model, views: balanced_softmax(through_split(model, views[0]))),
    (CBN, lambda model, views: balanced_softmax(model(views[0]))),
    (BOTH, both_paths),
    (BOTH | {"split_loss_weight": 0.3}, lambda model, views: both_paths(model, views, 0.3)),
    (BOTH | {"split_loss_weight": 0.0}, lambda model, views: both_paths(model, views, 0.0)),
    (DPL, dual_path),
    (DPL | {"update_on_weak": False}, lambda model, views: dual_path(model, views, update_on_weak=False)),
    (DPL | {"update_on_split": False}, lambda model, views: dual_path(model, views, split=still_split)),
    (DPL | {"statistics": "running"}, dual_path),
    (DPL | {"layers": ["stage3", "stage2.0.norm1"]}, dual_path),
]


@pytest.mark.parametrize(("settings", "composition"), ROWS, ids=[str(settings) for settings, _ in ROWS])
def test_each_row_is_the_composition_of_its_parts(settings: dict[str, Any], composition: Composition) -> None:
    trained = method(**settings)
    expected_model = copy.deepcopy(trained.model)
    batch = images(len(trained.views), seed=9)
    output = trained(batch)
    expected = composition(expected_model, batch.views)
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    expected.backward()
    for (name, parameter), other in zip(trained.model.named_parameters(), expected_model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6, msg=name)
    for (name, buffer), theirs in zip(trained.model.named_buffers(), expected_model.buffers(), strict=True):
        torch.testing.assert_close(buffer, theirs, msg=name)


def test_the_two_paths_differ_here() -> None:
    model = method(**DPL).model
    x = images().views[0]
    assert (model(x) - through_split(model, x)).abs().max() > 0.01


@contextmanager
def watched(model: nn.Module) -> Iterator[list[tuple[bool, bool, Tensor]]]:
    """The passes through the model: whether each took the split path and had gradients, and its images."""
    passes: list[tuple[bool, bool, Tensor]] = []
    layer = next((module for module in model.modules() if isinstance(module, CompoundBatchNorm)), None)

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        split = layer is not None and layer._groups is not None
        passes.append((split, torch.is_grad_enabled(), inputs[0]))

    handle = model.register_forward_pre_hook(note)
    yield passes
    handle.remove()


PASSES: list[tuple[dict[str, Any], str, int]] = [
    (BASELINE, "compound strong gradient", 1),
    (SBN, "split strong gradient", 1),
    (CBN, "compound strong gradient", 1),
    (BOTH, "compound strong gradient, split strong gradient", 2),
    (BOTH | {"split_loss_weight": 0.0}, "compound strong gradient, split strong", 2),
    (DPL, "compound weak, split weak, compound strong gradient, split strong gradient", 4),
    (
        DPL | {"update_on_weak": False},
        "compound weak, split weak, compound strong gradient, split strong gradient",
        2,
    ),
    (
        DPL | {"update_on_split": False},
        "compound weak, split weak, compound strong gradient, split strong gradient",
        2,
    ),
    (DPL | {"start": 0.5}, "compound strong gradient", 1),
    (SBN | {"start": 0.5}, "compound strong gradient", 1),
]


@pytest.mark.parametrize(("settings", "passes", "updates"), PASSES, ids=[str(settings) for settings, *_ in PASSES])
def test_no_row_has_more_passes_or_updates_than_its_line_in_the_table(
    settings: dict[str, Any], passes: str, updates: int
) -> None:
    trained = CompoundBN(network(), COUNTS, components=2, **PLAIN | settings)
    batch = images(len(trained.views))
    with watched(trained.model) as seen:
        trained(batch)
    names = dict(zip(map(id, batch.views), trained.views, strict=True))
    told = [
        " ".join(filter(None, ("split" if split else "compound", names[id(x)], "gradient" if gradient else "")))
        for split, gradient, x in seen
    ]
    assert ", ".join(told) == passes
    counters = [buffer for name, buffer in trained.named_buffers() if name.endswith("num_batches_tracked")]
    assert {int(counter) for counter in counters} == {updates}


def test_the_split_path_never_moves_the_priors() -> None:
    trained = method(**SBN)
    for name, buffer in trained.named_buffers():
        if name.endswith("prior"):
            assert torch.equal(buffer, torch.full((2,), 0.5)), name


@pytest.mark.parametrize(("settings", "components"), [(CBN, 1), (BASELINE, 4), (SBN, 1)])
def test_one_component_trains_as_batch_norm_does(settings: dict[str, Any], components: int) -> None:
    ours = CompoundBN(network(), COUNTS, components=components, **settings)
    theirs = ERM(network(), COUNTS, loss="balanced_softmax")
    optimisers = [
        torch.optim.SGD(each.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3) for each in (ours, theirs)
    ]
    for seed in range(4):
        losses = [each(images(seed=seed)).loss for each in (ours, theirs)]
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    state = ours.state_dict()
    for name, value in theirs.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(state[name].reshape(value.shape), value, rtol=1e-3, atol=1e-4, msg=name)
    torch.testing.assert_close(
        ours.eval().predict(images().views[0]), theirs.eval().predict(images().views[0]), rtol=1e-3, atol=1e-3
    )


def test_before_its_start_the_network_computes_what_it_would_with_batch_norm() -> None:
    late = CompoundBN(network(), COUNTS, component_init="fitted")
    batch_norm = ERM(network(), COUNTS, loss="balanced_softmax")
    late.set_progress(0.4)
    views = images(2)
    torch.testing.assert_close(late(views).loss, batch_norm(Images(views.views[1:], TARGET)).loss, rtol=1e-4, atol=1e-5)
    late.set_progress(0.5)
    assert "similarity" in late(views).parts


def test_a_deferred_start_resumes_by_progress_alone() -> None:
    first = method(start=0.5)
    second = CompoundBN(network(), COUNTS, components=2, start=0.5, **PLAIN)
    second.load_state_dict(first.state_dict())
    for each in (first, second):
        each.set_progress(0.75)
        each.set_progress(0.75)
    assert torch.equal(first(images(2)).loss, second(images(2)).loss)


FITTED = CBN | {"component_init": "fitted", "components": 3}


def apart(built: CompoundBN) -> list[bool]:
    return [not has_equal_components(norm) for norm in norms(built)]


@pytest.mark.parametrize("row", [CBN, BOTH, DPL])
def test_components_are_fitted_when_it_is_time_and_the_network_computes_what_it_did(row: dict[str, bool]) -> None:
    settings = FITTED | row
    built = CompoundBN(network(), COUNTS, **settings, start=0.5, momentum=0.0)  # so that no pass moves the statistics
    built.set_progress(0.25)
    built(images(len(built.views)))
    assert not any(apart(built))
    probe = images(seed=5).views[0]
    before = built.model.eval()(probe)
    built.train()
    built.set_progress(0.5)
    built(images(len(built.views)))
    assert all(apart(built))
    torch.testing.assert_close(built.model.eval()(probe), before, rtol=1e-3, atol=1e-4)


def test_components_are_fitted_once_also_if_the_run_is_resumed() -> None:
    built = CompoundBN(network(), COUNTS, **FITTED, momentum=0.0)
    built(images())
    resumed = CompoundBN(network(), COUNTS, **FITTED, momentum=0.0)
    resumed.load_state_dict(built.state_dict())
    for each in (built, resumed):
        before = copy.deepcopy(each.state_dict())
        each(images(seed=7))
        assert all(torch.equal(value, before[name]) for name, value in each.state_dict().items() if "running" in name)
