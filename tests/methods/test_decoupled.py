import copy
from importlib.resources import files as files_of
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import ClassBalancedLoss
from longtail.methods import ERM, Decoupled
from tests.support.two_stages import (
    COUNTS,
    EPOCHS,
    FIRST,
    STATISTICS,
    TARGET,
    changed,
    images,
    network,
    sgd,
    train,
    two_stages,
)

each_base = pytest.mark.parametrize("base", ["erm", "compound_bn"])


@each_base
@pytest.mark.parametrize("policy", ["frozen", "shifted", "reestimated"])
def test_the_second_stage_moves_the_classifier_and_only_the_statistics_its_policy_lets_it(
    base: str, policy: str
) -> None:
    method = two_stages(base=base, norm_policy=policy)
    optimiser = sgd(method)
    train(method, optimiser, range(FIRST))
    before = copy.deepcopy(method.state_dict())
    train(method, optimiser, range(FIRST, EPOCHS))
    moved = changed(method, before)
    assert {"stage", "model.classifier.weight", "model.classifier.bias"} <= moved
    rest = moved - {"stage", "model.classifier.weight", "model.classifier.bias"}
    statistics = {name for name in before if name.endswith(STATISTICS)}
    assert rest <= statistics
    means = {name for name in statistics if name.endswith("running_mean")}
    assert means <= rest if policy != "frozen" else rest == set()


def test_the_fixed_part_gets_no_gradient() -> None:
    method = Decoupled(network(), COUNTS)
    method(*images(method)).loss.backward()
    method.set_progress(0.8)
    method(*images(method)).loss.backward()
    with_gradient = {name for name, parameter in method.named_parameters() if parameter.grad is not None}
    assert with_gradient == {"model.classifier.weight", "model.classifier.bias"}


def test_a_frozen_stage_computes_in_training_what_it_does_in_eval() -> None:
    method = two_stages(base="compound_bn")
    train(method, sgd(method), range(FIRST))
    method.set_progress(0.8)
    (batch,) = images(method)
    trained = method.train()(batch).logits
    torch.testing.assert_close(trained, method.eval().model(batch.views[-1]).detach())


def test_reestimated_statistics_are_the_average_over_the_second_stage() -> None:
    """Against torch: one batch norm whose input does not change, with momentum None from its first batch on."""
    method = two_stages(norm_policy="reestimated")
    optimiser = sgd(method)
    train(method, optimiser, range(FIRST))
    seen: list[Tensor] = []
    norm = method.model.get_submodule("norm")
    norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]) if norm.training else None)
    train(method, optimiser, range(FIRST, EPOCHS))
    oracle = nn.BatchNorm2d(16, momentum=None)
    for x in seen:
        oracle(x)
    assert len(seen) == 4
    torch.testing.assert_close(norm.running_mean, oracle.running_mean)
    torch.testing.assert_close(norm.running_var, oracle.running_var)


@pytest.mark.parametrize("policy", ["frozen", "shifted", "reestimated"])
def test_going_back_to_the_first_stage_restores_its_layers(policy: str) -> None:
    method = two_stages(norm_policy=policy)
    method.set_progress(0.9)
    method.set_progress(0.1)
    assert all(module.training for module in method.modules())
    assert {m.momentum for m in method.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


@pytest.mark.parametrize(("resample", "sampler"), [(True, "class_balanced"), (False, "instance")])
def test_the_second_stage_names_its_sampler(resample: bool, sampler: str) -> None:
    method = Decoupled(network(), COUNTS, resample=resample, base_settings={"sampler": "square_root"})
    method.set_progress(0.79)
    assert method.samplers == ("square_root",)
    method.set_progress(0.8)
    assert method.samplers == (sampler,)


def test_the_second_stage_s_loss_is_cross_entropy_of_the_classifier() -> None:
    method = Decoupled(network(), COUNTS)
    method.set_progress(0.9)
    output = method(*images(method))
    torch.testing.assert_close(output.loss.detach(), F.cross_entropy(output.logits, TARGET))


@pytest.mark.parametrize("weighting", ["effective_number", "inverse_frequency"])
def test_reweighted_cross_entropy_is_the_class_balanced_loss(weighting: Any) -> None:
    method = Decoupled(network(), COUNTS, reweight=True, weighting=weighting, beta=0.99)
    method.set_progress(0.9)
    output = method(*images(method))
    oracle = ClassBalancedLoss(COUNTS, weighting=weighting, beta=0.99)
    torch.testing.assert_close(output.loss.detach(), oracle(output.logits, TARGET))


def test_any_loss_may_be_reweighted() -> None:
    method = Decoupled(network(), COUNTS, reweight=True, loss="balanced_softmax", weighting="inverse_frequency")
    method.set_progress(0.9)
    output = method(*images(method))
    rows = F.cross_entropy(output.logits + torch.tensor(COUNTS).log(), TARGET, reduction="none")
    weights = 1 / torch.tensor(COUNTS)[TARGET]
    torch.testing.assert_close(output.loss.detach(), (rows * weights).sum() / weights.sum())


def test_the_learning_rate_starts_again_with_the_second_stage() -> None:
    assert Decoupled(network(), COUNTS).stages == (0.0, 0.8)


@pytest.mark.parametrize(
    ("share", "epochs", "first"),
    [(0.8, 10, 8), (0.8, 7, 6), (0.75, 6, 5), (0.01, 5, 1), (7 / 25, 25, 7), (0.8, 2, 1), (0.8, 1, None)],
)
def test_both_stages_have_whole_epochs(share: float, epochs: int, first: int | None) -> None:
    """The learning rate, which follows `stages`, and the freezing, which follows `set_progress`, alike."""
    method = Decoupled(network(), COUNTS, representation_share=share)
    if first is None:
        with pytest.raises(ValueError, match="epochs must be at least 2, one for each stage, got 1"):
            method.plan(epochs)
        return
    method.plan(epochs)
    assert method.stages == (0.0, first / epochs)
    assert method.representation_share == method.settings()["representation_share"] == first / epochs
    frozen = []
    for epoch in range(epochs):
        method.set_progress(epoch / epochs)
        method.zero_grad()
        method(*images(method)).loss.backward()
        frozen.append(method.model.get_parameter("conv.weight").grad is None)
    assert frozen == [False] * first + [True] * (epochs - first)
    method.plan(epochs)  # again, as a resumed run does
    assert method.representation_share == first / epochs


def test_its_settings_hold_those_of_its_base() -> None:
    method = Decoupled(network(), COUNTS, base_settings={"loss": "balanced_softmax"}, reweight=True)
    settings = method.settings()
    assert settings["base"] == "erm"
    assert settings["base_settings"] == ERM(network(), COUNTS, loss="balanced_softmax").settings()
    again = Decoupled(network(), COUNTS, **settings)
    assert again.settings() == settings
    for each in (method, again):
        each.set_progress(0.9)
    assert torch.equal(method(*images(method)).loss, again(*images(again)).loss)


def test_each_weight_is_in_the_state_once() -> None:
    method = Decoupled(network(), COUNTS, base="compound_bn")
    state = method.state_dict()
    assert set(state) == {"stage", *(f"model.{name}" for name in method.model.state_dict())}
    copied = copy.deepcopy(method)
    assert copied.base_method.model is copied.model
    assert copied.model is not method.model


@pytest.mark.parametrize(
    "name", ["resnet10t", "efficientnet_lite0", "mobilenetv3_small_050", "convnext_atto", "regnetx_002"]
)
def test_the_second_stage_trains_the_last_layer_of_a_timm_model_alone(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=len(COUNTS), drop_rate=0.5, drop_path_rate=0.5)
    last = {f"model.{key}" for key in _keys_of_the_last_layer(model)}
    method = Decoupled(model, COUNTS)
    method.set_progress(0.9)
    batch = Batch((torch.randn(len(TARGET), 3, 32, 32),), TARGET, TARGET)
    output = method(batch)
    output.loss.backward()
    assert {key for key, parameter in method.named_parameters() if parameter.grad is not None} == last
    torch.testing.assert_close(output.logits, method.eval().model(batch.views[0]).detach())


def _keys_of_the_last_layer(model: nn.Module) -> list[str]:
    last = list(model.state_dict())[-2:]  # weight and bias
    assert [model.get_parameter(key).shape[0] for key in last] == [len(COUNTS), len(COUNTS)]
    return last


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": "decoupled"}, "base must be another method than 'decoupled' itself"),
        ({"representation_share": 1.0}, r"representation_share must be more than 0 and less than 1, got 1\.0"),
        ({"norm_policy": "free"}, "norm_policy must be 'frozen', 'shifted' or 'reestimated', got 'free'"),
        ({"reweight": True, "loss": "class_balanced"}, "reweight must be false with loss 'class_balanced'"),
        ({"reweight": True, "loss_settings": {"reduction": "sum"}}, "loss_settings must not set reduction with rewei"),
        ({"reweight": True, "weighting": "round"}, "weighting must be one of"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoupled(network(), COUNTS, **settings)


def test_a_model_without_a_known_classifier_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(4))
    with pytest.raises(ValueError, match="model must have forward_features and forward_head and get_classifier"):
        Decoupled(model, COUNTS)


def test_a_model_with_two_classifiers_is_refused() -> None:
    model = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=4, img_size=32)
    with pytest.raises(ValueError, match="model must have one classifier with parameters"):
        Decoupled(model, COUNTS)


def test_recipes_balance_the_second_stage_once() -> None:
    files = [file for folder in files_of("longtail.recipes").iterdir() if folder.is_dir() for file in folder.iterdir()]
    recipes = [yaml.safe_load(file.read_text())["method"] for file in files if file.name == "decoupled.yaml"]
    assert recipes
    for recipe in recipes:
        settings = {name: value for name, value in recipe.items() if name != "name"}
        method = Decoupled(network(), COUNTS, **settings)
        assert (method.resample, method.reweight, method.loss) == (True, False, "cross_entropy")
