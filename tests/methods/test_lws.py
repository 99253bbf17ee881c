import torch
import torch.nn.functional as F

from longtail.methods import LWS
from longtail.models import create_model
from tests.support.one_step import BATCH, COUNTS, TARGET, build, moved_by_a_step


def test_it_is_cross_entropy_first_and_scales_of_one_change_nothing() -> None:
    plain = create_model("resnet8", 3).eval()
    method = LWS(plain, COUNTS).eval()
    logits = method.model(BATCH.views[0])
    for progress in (0.0, 0.9):
        method.set_progress(progress)
        output = method(BATCH)
        torch.testing.assert_close(output.logits, logits.detach())
        torch.testing.assert_close(output.loss, F.cross_entropy(logits, TARGET))


def test_the_gradient_of_a_scale_is_that_of_the_equation() -> None:
    method = build(LWS).eval()
    method.set_progress(0.9)
    method(BATCH).loss.backward()
    logits = method.model(BATCH.views[0]).detach()
    expected = torch.zeros(3)
    for i in range(4):
        for c in range(3):
            expected[c] += (logits[i].softmax(0)[c] - float(TARGET[i] == c)) * logits[i, c] / 4
    torch.testing.assert_close(method.model.get_parameter("classifier.scale").grad, expected)


def test_the_second_stage_moves_the_scales_alone_and_draws_class_balanced() -> None:
    method = build(LWS)
    method.set_progress(0.9)
    assert method.samplers == ("class_balanced",)
    assert moved_by_a_step(method) == {"model.classifier.scale"}


def test_the_first_stage_leaves_the_scales_alone() -> None:
    method = build(LWS)
    method.set_progress(0.0)
    assert "model.classifier.scale" not in moved_by_a_step(method)
