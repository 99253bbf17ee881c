import pytest
import torch
import torch.nn.functional as F

from longtail.data.views import Batch
from longtail.losses import LOSSES, LDAMLoss
from longtail.methods import ERM
from longtail.models import create_model

COUNTS = [40, 10, 2]


IMAGES = Batch((torch.linspace(-1, 1, 3 * 3 * 64).reshape(3, 3, 8, 8),), torch.tensor([0, 1, 2]), torch.arange(3))


def test_the_step_is_the_loss_of_the_model_s_logits() -> None:
    model = create_model("resnet8", 3)
    output = ERM(model, COUNTS)(IMAGES)
    logits = model(IMAGES.views[0])
    torch.testing.assert_close(output.loss, F.cross_entropy(logits, IMAGES.target))
    torch.testing.assert_close(output.logits, logits.detach())


@pytest.mark.parametrize("name", LOSSES)
def test_takes_any_loss(name: str) -> None:
    model = create_model("resnet8", 3)
    output = ERM(model, COUNTS, loss=name)(IMAGES)
    torch.testing.assert_close(output.loss.detach(), LOSSES[name](COUNTS)(output.logits, IMAGES.target))


def test_settings_reach_the_loss() -> None:
    method = ERM(create_model("resnet8", 3), COUNTS, loss="ldam", loss_settings={"scale": 1.0})
    assert isinstance(method.criterion, LDAMLoss)
    assert method.criterion.scale == 1.0
    method.set_progress(0.9)
    assert method.criterion.reweight


def test_its_settings_hold_the_arguments_of_the_loss_that_were_left_out() -> None:
    settings = ERM(create_model("resnet8", 3), COUNTS, loss="ldam", loss_settings={"scale": 1.0}).settings()
    expected = {"max_margin": 0.5, "scale": 1.0, "beta": 0.9999, "reweight_from": 0.8, "reduction": "mean"}
    assert settings == {"loss": "ldam", "loss_settings": expected, "view": "strong", "sampler": "instance"}


def test_a_loss_of_many_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="loss_settings must not set reduction to 'none'"):
        ERM(create_model("resnet8", 3), COUNTS, loss_settings={"reduction": "none"})


def test_trains_on_the_strong_view_of_each_image_unless_told_otherwise() -> None:
    method = ERM(create_model("resnet8", 3), COUNTS)
    assert (method.views, method.samplers) == (("strong",), ("instance",))
    method = ERM(create_model("resnet8", 3), COUNTS, view="weak", sampler="class_balanced")
    assert (method.views, method.samplers) == (("weak",), ("class_balanced",))


def test_an_unknown_view_is_refused() -> None:
    with pytest.raises(ValueError, match="view must be one of strong, weak, got 'mild'"):
        ERM(create_model("resnet8", 3), COUNTS, view="mild")
