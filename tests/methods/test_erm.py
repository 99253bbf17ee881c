from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.mixing import cmo, mixup
from longtail.data.views import Batch
from longtail.losses import LOSSES, LDAMLoss, class_weights
from longtail.methods import ERM
from longtail.models import create_model
from longtail.training.microbatches import cut_microbatches

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
    cosines = output.logits / (LOSSES[name](COUNTS).cosine_scale() or 1)
    torch.testing.assert_close(output.loss.detach(), LOSSES[name](COUNTS)(cosines, IMAGES.target))


def test_settings_reach_the_loss() -> None:
    method = ERM(create_model("resnet8", 3), COUNTS, loss="ldam", loss_settings={"scale": 1.0})
    assert isinstance(method.criterion, LDAMLoss)
    assert method.criterion.scale == 1.0
    method.set_progress(0.9)
    assert method.criterion.reweight


def test_its_settings_hold_the_arguments_of_the_loss_that_were_left_out() -> None:
    settings = ERM(
        create_model("resnet8", 3), COUNTS, loss="ldam", loss_settings={"scale": 1.0}, mixing="remix"
    ).settings()
    expected = {"max_margin": 0.5, "scale": 1.0, "beta": 0.9999, "reweight_from": 0.8, "reduction": "mean"}
    assert settings["loss_settings"] == expected
    assert settings["mixing_settings"] == {"alpha": 1.0, "kappa": 3.0, "tau": 0.5}
    assert settings["classifier"] == "cosine"


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


MANY = torch.tensor([0, 0, 0, 1, 1, 2, 0, 1])


class Flat(nn.Module):
    """Without batch norms, so that micro-batches equal the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(48, 3)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        logits: Tensor = x if pre_logits else self.fc(x)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def images(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch((torch.randn(8, 3, 4, 4, generator=generator),), MANY.roll(seed), torch.arange(8))


def prepared(method: ERM) -> tuple[Batch, ...]:
    torch.manual_seed(3)
    return method.prepare(*(images(number) for number in range(len(method.samplers))))


def test_late_class_weights_are_torch_s_weighted_mean() -> None:
    method = ERM(Flat(), COUNTS, reweight_from=0.5)
    for progress, weight in ((0.0, None), (0.49, None), (0.5, class_weights(COUNTS)), (1.0, class_weights(COUNTS))):
        method.set_progress(progress)
        for given in (method.prepare(images(0)), (images(0),)):
            output = method(*given)
            expected = F.cross_entropy(output.logits, images(0).target, weight=weight)
            torch.testing.assert_close(output.loss.detach(), expected)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"class_balanced", "ldam"}))
def test_class_weights_set_in_late_with_any_loss_that_has_none_of_its_own(name: str) -> None:
    method = ERM(Flat(), COUNTS, loss=name, reweight_from=0.5)
    for progress, weights in ((0.4, torch.ones(3)), (0.5, class_weights(COUNTS))):
        method.set_progress(progress)
        (batch,) = method.prepare(images(0))
        output = method(batch)
        losses = LOSSES[name](COUNTS, reduction="none")(output.logits, batch.target)
        mass = weights[batch.target]
        torch.testing.assert_close(output.loss.detach(), (mass * losses).sum() / mass.sum())


@pytest.mark.parametrize("mixing", [None, "mixup", "cutmix", "remix", "unimix", "cmo"])
@pytest.mark.parametrize(
    "settings", [{"reweight_from": 0.5}, {"loss": "class_balanced"}, {"loss": "ldam"}, {"loss": "balanced_softmax"}]
)
def test_micro_batches_of_any_size_equal_the_whole_batch(mixing: str | None, settings: dict[str, Any]) -> None:
    method = ERM(Flat(), COUNTS, mixing=mixing, **settings)
    method.set_progress(0.9)
    whole = prepared(method)
    expected = torch.autograd.grad(method(*whole).loss, list(method.parameters()))
    for number in (2, 3, 4):
        loss = torch.stack([method(*cut).loss * len(cut[0].target) / 8 for cut in cut_microbatches(whole, number)])
        found = torch.autograd.grad(loss.sum(), list(method.parameters()))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_mixed_images_have_the_cross_entropy_of_soft_labels() -> None:
    method = ERM(Flat(), COUNTS, mixing="mixup", mixing_settings={"alpha": 1.0})
    (batch,) = prepared(method)
    torch.manual_seed(3)
    torch.rand(())  # whether to mix
    mixed = mixup(*images(0).views, images(0).target, alpha=1.0, generator=torch.default_generator)
    assert torch.equal(batch.views[0], mixed.images)
    soft = torch.zeros(8, 3).scatter_add_(1, mixed.target_a[:, None], mixed.weight[:, None])
    soft = soft.scatter_add_(1, mixed.target_b[:, None], 1 - mixed.weight[:, None])
    output = method(batch)
    torch.testing.assert_close(output.loss.detach(), F.cross_entropy(output.logits, soft))


def test_late_weights_of_mixed_images_follow_the_double_sum() -> None:
    method = ERM(Flat(), COUNTS, mixing="cmo", reweight_from=0.0)
    assert method.samplers == ("instance", "class_balanced")
    (batch,) = prepared(method)
    torch.manual_seed(3)
    torch.rand(())
    (background,), (patches,) = images(0).views, images(1).views
    generator = torch.default_generator
    mixed = cmo(background, images(0).target, patches=patches, patch_target=images(1).target, generator=generator)
    logits, weights = method(batch).logits, class_weights(COUNTS)
    losses, masses = torch.zeros(()), torch.zeros(())
    for i in range(8):
        for label, share in ((mixed.target_a[i], mixed.weight[i]), (mixed.target_b[i], 1 - mixed.weight[i])):
            losses += share * weights[label] * -logits[i].log_softmax(0)[label]
            masses += share * weights[label]
    torch.testing.assert_close(method(batch).loss.detach(), losses / masses)


def test_some_steps_stay_plain_if_mixing_is_not_for_all() -> None:
    method = ERM(Flat(), COUNTS, mixing="mixup", mixing_probability=0.5)
    torch.manual_seed(0)
    changed = [not torch.equal(method.prepare(images(0))[0].views[0], images(0).views[0]) for _ in range(40)]
    assert 10 < sum(changed) < 30


def test_ldam_takes_cosines_and_deploys_them_scaled() -> None:
    model = create_model("resnet8", 3)
    method = ERM(model, COUNTS, loss="ldam", loss_settings={"max_margin": 0.0}).eval()
    logits = method.model(IMAGES.views[0])
    weight = model.get_parameter("classifier.weight")
    cosines = F.cosine_similarity(method.features(IMAGES.views[0])[:, None], weight[None], dim=2)
    torch.testing.assert_close(logits, 30 * cosines)
    torch.testing.assert_close(method(IMAGES).loss, F.cross_entropy(logits, IMAGES.target))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "ldam", "classifier": "linear"}, "classifier must be 'cosine' for loss 'ldam', got 'linear'"),
        ({"classifier": "round"}, "classifier must be 'linear' or 'cosine', got 'round'"),
        ({"reweight_from": 2.0}, r"reweight_from must be from 0 to 1, got 2\.0"),
        ({"reweight_from": 0.8, "loss": "ldam"}, r"'ldam', which has .* \(set loss_settings\.reweight_from instead"),
        ({"reweight_from": 0.8, "loss": "class_balanced"}, "reweight_from must be null for loss 'class_balanced'"),
        ({"mixing_settings": {"alpha": 1.0}}, "mixing_settings must be empty without mixing"),
        (
            {"mixing": "mixup", "mixing_settings": {"tau": 1.0}},
            "mixing_settings must be of alpha for 'mixup', got 'tau'",
        ),
        ({"mixing_probability": 0.0}, r"mixing_probability must be above 0 and at most 1, got 0\.0"),
        ({"loss_settings": {"reduction": "sum"}}, "loss_settings must leave reduction at 'mean', got 'sum'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ERM(create_model("resnet8", 3), COUNTS, **settings)


def test_a_cosine_classifier_needs_a_model_with_a_linear_one() -> None:
    with pytest.raises(ValueError, match=r"model must have forward_features .* for a cosine classifier, got Linear"):
        ERM(nn.Linear(4, 3), COUNTS, classifier="cosine")
