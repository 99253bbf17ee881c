from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.methods import LOS
from tests.support.one_step import BATCH, TARGET, build, moved_by_a_step


def test_both_stages_are_torch_s_cross_entropy_with_their_smoothing() -> None:
    method = build(LOS, label_smoothing=0.9).eval()
    for progress, smoothing in ((0.0, 0.0), (0.9, 0.9)):
        method.set_progress(progress)
        logits = method.model(BATCH.views[0])
        torch.testing.assert_close(method(BATCH).loss, F.cross_entropy(logits, TARGET, label_smoothing=smoothing))


def test_without_smoothing_the_second_stage_goes_on_with_cross_entropy() -> None:
    method = build(LOS, label_smoothing=0.0).eval()
    first = method(BATCH).loss
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).loss, first)


def test_the_second_stage_starts_one_new_classifier_if_asked() -> None:
    method = build(LOS, reset_classifier=True)
    old = method.model.get_parameter("classifier.weight").detach().clone()
    method.set_progress(0.9)
    new = method.model.get_parameter("classifier.weight").detach().clone()
    assert not torch.equal(old, new)
    method.set_progress(0.95)
    assert torch.equal(method.model.get_parameter("classifier.weight"), new)


def test_the_second_stage_moves_the_classifier_alone() -> None:
    method = build(LOS)
    method.set_progress(0.9)
    assert moved_by_a_step(method) == {"model.classifier.weight", "model.classifier.bias"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing": 1.0}, r"label_smoothing must be at least 0 and less than 1, got 1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(LOS, **settings)
