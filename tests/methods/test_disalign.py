from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from longtail.methods import DisAlign
from tests.support.one_step import BATCH, COUNTS, TARGET, build, moved_by_a_step


def test_the_correction_starts_at_none() -> None:
    method = build(DisAlign).eval()
    logits = method.model(BATCH.views[0]).detach()
    weights = (torch.tensor(COUNTS) / 52) ** -1.2
    for progress, weight in ((0.0, None), (0.9, weights)):
        method.set_progress(progress)
        for given in ((BATCH,), method.prepare(BATCH)):
            output = method(*given)
            torch.testing.assert_close(output.logits, logits)
            torch.testing.assert_close(output.loss.detach(), F.cross_entropy(logits, TARGET, weight=weight))


def test_the_corrected_logits_are_those_of_the_equation() -> None:
    method = build(DisAlign).eval()
    plain = method.model(BATCH.views[0]).detach()
    named = dict(method.model.get_submodule("classifier").named_parameters())
    for name in ("gate.weight", "gate.bias", "scale", "offset"):
        nn.init.normal_(named[name])
    features, found = method.features(BATCH.views[0]), method.model(BATCH.views[0])
    for i in range(4):
        gate = 1 / (1 + torch.exp(-(named["gate.weight"][0] @ features[i] + named["gate.bias"][0])))
        for c in range(3):
            expected = (1 + gate * named["scale"][c]) * plain[i, c] + gate * named["offset"][c]
            torch.testing.assert_close(found[i, c], expected)
    method.set_progress(0.9)
    torch.testing.assert_close(method(BATCH).logits, found.detach())


def test_a_closed_gate_leaves_the_logits_as_they_are() -> None:
    method = build(DisAlign).eval()
    plain = method.model(BATCH.views[0]).detach()
    named = dict(method.model.get_submodule("classifier").named_parameters())
    for name in ("scale", "offset"):
        nn.init.normal_(named[name])
    nn.init.constant_(named["gate.bias"], -torch.inf)
    torch.testing.assert_close(method.model(BATCH.views[0]), plain)


def test_the_second_stage_moves_the_correction_alone() -> None:
    method = build(DisAlign)
    method.set_progress(0.9)
    assert method.samplers == ("instance",)
    moved = moved_by_a_step(method) | moved_by_a_step(method)
    assert moved == {f"model.classifier.{name}" for name in ("scale", "offset", "gate.weight", "gate.bias")}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"power": -1.0}, r"power must be a finite number of zero or more, got -1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(DisAlign, **settings)
