"""What `LongTailLoss` promises, held for every name in the registry."""

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from longtail._typing import Reduction
from longtail.class_counts import ClassCounts
from longtail.losses import LOSSES
from longtail.methods.base import resolved_arguments

COUNTS = [500, 90, 7, 1, 90]
# The arguments that turn a loss into plain cross-entropy, whatever the counts; none: counts alone decide.
NEUTRAL: dict[str, dict[str, float]] = {
    "cross_entropy": {},
    "logit_adjustment": {"strength": 0.0},
    "class_balanced": {"beta": 0.0},
    "focal": {"gamma": 0.0},
    "ldam": {"max_margin": 0.0, "scale": 1.0},
    "label_aware_smoothing": {"head": 0.0, "tail": 0.0},
    "vs": {"stretch": 0.0, "shift": 0.0},
}
# Further arguments that equal counts do not make neutral.
WITH_EQUAL_COUNTS: dict[str, dict[str, float]] = {
    "focal": {"gamma": 0.0},
    "ldam": {"max_margin": 0.0, "scale": 1.0, "reweight_from": 0.0},
}

each_loss = pytest.mark.parametrize("name", LOSSES)
each_reduction = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def batch(dtype: torch.dtype = torch.float32, rows: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(rows, len(COUNTS), generator=generator)
    return logits.to(dtype).requires_grad_(), torch.randint(len(COUNTS), (rows,), generator=generator)


def assert_equal_losses(loss: torch.nn.Module, reduction: Reduction) -> None:
    logits, target = batch()
    got, want = loss(logits, target), F.cross_entropy(logits, target, reduction=reduction)
    torch.testing.assert_close(got, want)
    for value, other in zip(
        torch.autograd.grad(got.sum(), logits), torch.autograd.grad(want.sum(), logits), strict=True
    ):
        torch.testing.assert_close(value, other)


@each_loss
@each_reduction
def test_equal_counts_give_cross_entropy(name: str, reduction: Reduction) -> None:
    loss = LOSSES[name]([37] * len(COUNTS), reduction=reduction, **WITH_EQUAL_COUNTS.get(name, {}))
    assert_equal_losses(loss, reduction)


@pytest.mark.parametrize("name", NEUTRAL)
@each_reduction
def test_neutral_settings_give_cross_entropy(name: str, reduction: Reduction) -> None:
    assert_equal_losses(LOSSES[name](COUNTS, reduction=reduction, **NEUTRAL[name]), reduction)


def test_only_balanced_softmax_has_no_neutral_setting() -> None:
    assert set(LOSSES) - set(NEUTRAL) == {"balanced_softmax"}


@each_loss
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("progress", [0.0, 1.0])
def test_is_finite_for_extreme_counts_and_logits(name: str, size: float, progress: float) -> None:
    loss = LOSSES[name]([10**6, 1, 1000, 1, 10**6], reduction="none")
    loss.set_progress(progress)
    rows = torch.tensor([[1, -1, 0, 0, 0], [-1, 1, 1, -1, 0], [1, 1, 1, 1, 1]]).repeat_interleave(5, dim=0)
    logits = (size * rows).requires_grad_()
    value = loss(logits, torch.arange(5).repeat(3))
    value.sum().backward()
    assert value.isfinite().all()
    assert (value >= 0).all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@each_loss
def test_sum_is_the_sum_of_none(name: str) -> None:
    none, total = (LOSSES[name](COUNTS, reduction=reduction)(*batch()) for reduction in ("none", "sum"))
    assert none.shape == (16,)
    torch.testing.assert_close(total, none.sum())


@each_loss
def test_a_batch_shown_twice_has_the_same_mean(name: str) -> None:
    logits, target = batch()
    loss = LOSSES[name](COUNTS)
    torch.testing.assert_close(loss(logits.repeat(2, 1), target.repeat(2)), loss(logits, target))


@each_loss
def test_rows_do_not_see_each_other(name: str) -> None:
    logits, target = batch()
    loss = LOSSES[name](COUNTS, reduction="none")
    alone = torch.cat([loss(logits[i : i + 1], target[i : i + 1]) for i in range(len(target))])
    torch.testing.assert_close(alone, loss(logits, target))


@each_loss
def test_renaming_the_classes_changes_nothing(name: str) -> None:
    logits, target = batch(torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    renamed = LOSSES[name](torch.tensor(COUNTS)[order], reduction="none")
    torch.testing.assert_close(
        renamed(logits[:, order], order.argsort()[target]),
        LOSSES[name](COUNTS, reduction="none")(logits, target),
    )


# vs stretches each class by another factor, so it is not shift invariant.
@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"vs"}))
def test_adding_a_constant_to_a_row_changes_nothing(name: str) -> None:
    logits, target = batch(torch.float64)
    loss = LOSSES[name](COUNTS, reduction="none")
    torch.testing.assert_close(loss(logits + 5, target), loss(logits, target))


@each_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_logits_are_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    logits, target = batch(dtype)
    loss = LOSSES[name](COUNTS).half()  # a model's `.half()` reaches its loss too, and must not round the counts
    value = loss(logits, target)
    assert value.dtype == torch.float32
    assert torch.equal(value, LOSSES[name](COUNTS)(logits.float(), target))
    value.backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype


@each_loss
def test_autocast_changes_nothing(name: str) -> None:
    loss = LOSSES[name](COUNTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(*batch())
    assert torch.equal(inside, loss(*batch()))


@each_loss
def test_float64_stays(name: str) -> None:
    assert LOSSES[name](COUNTS)(*batch(torch.float64)).dtype == torch.float64


@each_loss
def test_counts_may_be_a_list_class_counts_or_a_tensor(name: str) -> None:
    logits, target = batch()
    values = [LOSSES[name](counts)(logits, target) for counts in (COUNTS, ClassCounts(COUNTS), torch.tensor(COUNTS))]
    assert values[0] == values[1] == values[2]


@each_loss
def test_the_module_does_not_follow_a_later_change_of_the_counts(name: str) -> None:
    counts = torch.tensor(COUNTS)
    loss = LOSSES[name](counts)
    before = loss(*batch())
    counts.fill_(1)
    assert torch.equal(loss(*batch()), before)


@each_loss
def test_follows_the_device_of_the_module(name: str) -> None:
    logits, target = batch()
    value = LOSSES[name](COUNTS).to("meta")(logits.to("meta"), target.to("meta"))
    assert value.device.type == "meta"


@each_loss
def test_has_no_state_and_takes_an_empty_one(name: str) -> None:
    loss = LOSSES[name](COUNTS)
    assert loss.state_dict() == {}
    assert list(loss.parameters()) == []
    loss.load_state_dict({}, strict=True)


# Other values than the defaults, so that an argument that is kept under another name or not at all is noticed.
OTHER: dict[str, Any] = {
    "weighting": "inverse_frequency",
    "shape": "convex",
    "beta": 0.9,
    "gamma": 1.5,
    "max_margin": 0.3,
    "scale": 7.0,
    "reweight_from": 0.0,
    "head": 0.2,
    "label_smoothing": 0.2,
    "tail": 0.1,
    "strength": 0.5,
    "stretch": 0.3,
    "shift": 0.4,
    "reduction": "sum",
}


@each_loss
@pytest.mark.parametrize("other", [False, True], ids=["defaults", "others"])
def test_a_loss_built_anew_from_its_resolved_arguments_is_the_same(name: str, other: bool) -> None:
    arguments = [setting for setting in inspect.signature(LOSSES[name]).parameters if setting != "class_counts"]
    given = {setting: OTHER[setting] for setting in arguments} if other else {}
    loss = LOSSES[name](COUNTS, **given)
    resolved = resolved_arguments(loss)
    assert list(resolved) == arguments
    assert {setting: resolved[setting] for setting in given} == given
    again = LOSSES[name](COUNTS, **yaml.safe_load(yaml.safe_dump(resolved)))
    for progress in (0.0, 1.0):
        loss.set_progress(progress)
        again.set_progress(progress)
        assert torch.equal(loss(*batch()), again(*batch()))
    assert resolved_arguments(loss) == resolved


@each_loss
def test_its_repr_names_the_classes_and_the_reduction(name: str) -> None:
    text = repr(LOSSES[name](COUNTS))
    assert "classes=5" in text
    assert "reduction='mean'" in text


@each_loss
def test_an_empty_batch_sums_to_zero(name: str) -> None:
    logits, target = torch.zeros(0, len(COUNTS)), torch.zeros(0, dtype=torch.int64)
    assert LOSSES[name](COUNTS, reduction="sum")(logits, target) == 0


@each_loss
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([5, 0, 3], "class_counts must be at least 1 for every class, got 0 for class 1"),
        ([5, 3, -2], "class_counts must be at least 1 for every class, got -2 for class 2"),
        ([], r"class_counts must be one number per class, got shape \(0,\)"),
        (torch.ones(2, 2), r"class_counts must be one number per class, got shape \(2, 2\)"),
    ],
)
def test_bad_counts_are_refused(name: str, counts: list[int] | Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LOSSES[name](counts)


@each_loss
def test_counts_of_another_length_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"class_counts must have one count per column of logits, 5, got 4"):
        LOSSES[name](COUNTS[:4])(*batch())


@each_loss
@pytest.mark.parametrize(
    ("logits", "target", "error", "message"),
    [
        (torch.zeros(5), torch.tensor([1]), ValueError, r"logits must have shape .* got \(5,\)"),
        (torch.zeros(2, 5).long(), torch.tensor([1, 1]), TypeError, "logits must be floating point, got"),
        (
            torch.zeros(2, 5),
            torch.tensor([1]),
            ValueError,
            r"target must have one label per row of logits, shape \(2,\), got shape \(1,\)",
        ),
        (torch.zeros(1, 5), torch.tensor([5]), ValueError, "target must be from 0 to 4, got 5"),
        (torch.zeros(1, 5), torch.tensor([-100]), ValueError, "got -100 .there is no ignore_index"),
        (torch.zeros(1, 5), torch.tensor([1], dtype=torch.int32), TypeError, "got torch.int32; call target"),
        (
            torch.zeros(1, 5),
            torch.ones(1, 5) / 5,
            TypeError,
            "target must be class indices .* mix the losses",
        ),
    ],
)
def test_bad_batches_are_refused(
    name: str, logits: Tensor, target: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        LOSSES[name](COUNTS)(logits, target)


@each_loss
def test_an_unknown_reduction_is_refused(name: str) -> None:
    mistake: dict[str, Any] = {"reduction": "average"}
    with pytest.raises(ValueError, match="reduction must be 'none', 'mean' or 'sum', got 'average'"):
        LOSSES[name](COUNTS, **mistake)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (name, setting)
        for name in LOSSES
        for setting in inspect.signature(LOSSES[name]).parameters
        if setting not in ("class_counts", "reduction")
    ],
)
def test_a_bad_setting_is_refused_when_the_module_is_made(name: str, setting: str) -> None:
    values: tuple[Any, ...] = ("round",) if setting in ("weighting", "shape") else (-0.1, 1e400, float("nan"))
    for value in values:
        with pytest.raises(ValueError, match=f"{setting} must be .*, got '?{value}"):
            LOSSES[name](COUNTS, **{setting: value})


@each_loss
def test_compiles_without_a_graph_break(name: str) -> None:
    loss = LOSSES[name](COUNTS)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*batch()), loss(*batch()))


@each_loss
@pytest.mark.parametrize("progress", [-0.1, 1.5, float("nan")])
def test_progress_outside_the_training_is_refused(name: str, progress: float) -> None:
    with pytest.raises(ValueError, match="progress must be from 0 to 1"):
        LOSSES[name](COUNTS).set_progress(progress)
