import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.methods import ERM, CompoundBN
from longtail.nn import CompoundBatchNorm, split_path
from tests.support.small_network import COUNTS, GROUPS, PLAIN, TARGET, images, network


def build(row: str, norm: dict[str, Any] | None = None, **settings: Any) -> CompoundBN:
    chosen = PLAIN | {"reading_settings": PLAIN["reading_settings"] | (norm or {})} | settings
    return CompoundBN(network(), COUNTS, row=row, components=2, **chosen)


def method(**settings: Any) -> CompoundBN:
    built = build(**settings)
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
    split: Callable[[nn.Module, Tensor], Tensor] = through_split,
) -> Tensor:
    """The paper's loss, each path where the paper's algorithm has it, without `no_grad`."""
    weak, strong = views
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
    ({"row": "baseline"}, lambda model, views: balanced_softmax(model(views[0]))),
    ({"row": "sbn"}, lambda model, views: balanced_softmax(through_split(model, views[0]))),
    ({"row": "cbn"}, lambda model, views: balanced_softmax(model(views[0]))),
    ({"row": "cbn_sbn"}, both_paths),
    ({"row": "cbn_sbn", "split_loss_weight": 0.3}, lambda model, views: both_paths(model, views, 0.3)),
    ({"row": "cbn_sbn", "split_loss_weight": 0.0}, lambda model, views: both_paths(model, views, 0.0)),
    ({"row": "cbn_sbn_dpl"}, dual_path),
    (
        {"row": "cbn_sbn_dpl", "reading_settings": {"update_on_split": False}},
        lambda model, views: dual_path(model, views, split=still_split),
    ),
    ({"row": "cbn_sbn_dpl", "reading_settings": {"statistics": "running"}}, dual_path),
    ({"row": "cbn_sbn_dpl", "reading_settings": {"statistics": "updated"}}, dual_path),
    ({"row": "cbn_sbn_dpl", "layers": ["stage3", "stage2.0.norm1"]}, dual_path),
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
    model = method(row="cbn_sbn_dpl").model
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


ALL_FOUR = "compound weak, split weak, compound strong gradient, split strong gradient"
PASSES: list[tuple[dict[str, Any], str, int]] = [
    ({"row": "baseline"}, "compound strong gradient", 1),
    ({"row": "sbn"}, "split strong gradient", 1),
    ({"row": "cbn"}, "compound strong gradient", 1),
    ({"row": "cbn_sbn"}, "compound strong gradient, split strong gradient", 2),
    ({"row": "cbn_sbn", "split_loss_weight": 0.0}, "compound strong gradient, split strong", 2),
    ({"row": "cbn_sbn_dpl"}, ALL_FOUR, 4),
    ({"row": "cbn_sbn_dpl", "reading_settings": {"update_on_split": False}}, ALL_FOUR, 2),
    # The batch norms before stage 3 are plain ones, and are counted too.
    ({"row": "cbn_sbn_dpl", "layers": ["stage3"], "reading_settings": {"update_on_split": False}}, ALL_FOUR, 2),
]


@pytest.mark.parametrize(("settings", "passes", "updates"), PASSES, ids=[str(settings) for settings, *_ in PASSES])
def test_no_row_has_more_passes_or_updates_than_its_line_in_the_table(
    settings: dict[str, Any], passes: str, updates: int
) -> None:
    trained = build(**settings)
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
    trained = method(row="sbn")
    for name, buffer in trained.named_buffers():
        if name.endswith("prior"):
            assert torch.equal(buffer, torch.full((2,), 0.5)), name


@pytest.mark.parametrize(("row", "components"), [("cbn", 1), ("baseline", 4), ("sbn", 1)])
def test_one_component_trains_as_batch_norm_does(row: str, components: int) -> None:
    ours = CompoundBN(network(), COUNTS, components=components, row=row)
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
    found, expected = (each.eval().model(images().views[0]) for each in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


# What three steps gave when the published numbers were measured.
PUBLISHED = {
    "baseline": [1.443453, 1.405419, 1.417196],
    "sbn": [1.719089, 1.391541, 1.205356],
    "cbn": [1.552666, 1.378335, 1.526972],
    "cbn_sbn": [3.271755, 2.856878, 2.770264],
    "cbn_sbn_dpl": [-0.166566, -0.614498, -0.332007],
}


@pytest.mark.parametrize("row", PUBLISHED)
def test_the_default_trains_as_it_did_for_the_published_numbers(row: str) -> None:
    trained = CompoundBN(network(), COUNTS, row=row, components=2)
    optimiser = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    losses = []
    for seed in range(3):
        loss = trained(images(len(trained.views), seed)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == pytest.approx(PUBLISHED[row], abs=2e-5)
