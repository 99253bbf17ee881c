from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.methods import MiSLAS
from tests.support.one_step import BATCH, COUNTS, TARGET, build, moved_by_a_step


def test_the_first_stage_is_cross_entropy_with_the_soft_labels_of_mixup() -> None:
    method = build(MiSLAS).eval()
    method.set_progress(0.0)
    torch.manual_seed(1)
    (batch,) = method.prepare(BATCH)
    share = batch.extra["share"][:, None]
    soft = share * F.one_hot(batch.target, 3) + (1 - share) * F.one_hot(batch.extra["second_target"], 3)
    output = method(batch)
    torch.testing.assert_close(output.loss.detach(), F.cross_entropy(output.logits, soft))
    assert not torch.equal(batch.views[0], BATCH.views[0])


def test_the_second_stage_without_smoothing_starts_as_cross_entropy_on_plain_images() -> None:
    method = build(MiSLAS, head=0.0, tail=0.0).eval()
    method.set_progress(0.95)
    (batch,) = method.prepare(BATCH)
    assert batch is BATCH
    torch.testing.assert_close(method(batch).loss, F.cross_entropy(method.model(BATCH.views[0]), TARGET))


def test_smoothing_follows_the_equation() -> None:
    method = build(MiSLAS, head=0.4, tail=0.1).eval()
    method.set_progress(0.95)
    output = method(BATCH)
    expected = torch.zeros(())
    for logits, label in zip(output.logits, TARGET.tolist(), strict=True):
        share = torch.tensor((COUNTS[label] - 2) / 38)
        smoothing = 0.1 + 0.3 * torch.sin(share * torch.pi / 2)
        for c, log_p in enumerate(logits.log_softmax(0)):
            expected -= (1 - smoothing if c == label else smoothing / 2) * log_p / 4
    torch.testing.assert_close(output.loss.detach(), expected)


def test_classifier_and_scales_learn_at_the_authors_rates() -> None:
    method = build(MiSLAS, classifier_lr_scale=0.2)
    method.set_progress(0.95)
    rest, scales = method.parameter_groups()
    assert method.lr_scale * rest.get("lr_scale", 1.0) == 0.2
    assert method.lr_scale * scales["lr_scale"] == pytest.approx(1.0)
    assert len(scales["params"]) == 1


@pytest.mark.parametrize("policy", ["frozen", "shifted"])
def test_the_second_stage_moves_classifier_and_scales_and_shifted_statistics(policy: str) -> None:
    method = build(MiSLAS, norm_policy=policy)
    method.set_progress(0.95)
    learnt = {f"model.classifier.{name}" for name in ("scale", "linear.weight", "linear.bias")}
    moved = moved_by_a_step(method)
    assert learnt <= moved
    others = {key.rpartition(".")[2] for key in moved - learnt}
    assert others == (set() if policy == "frozen" else {"running_mean", "running_var", "num_batches_tracked"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, r"alpha must be positive and finite, got 0\.0"),
        ({"head": 1.0}, r"head must be at least 0 and less than 1, got 1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(MiSLAS, **settings)
