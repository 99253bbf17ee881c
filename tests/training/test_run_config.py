from pathlib import Path

import pytest

from longtail._errors import UsageError
from longtail.methods import ERM
from longtail.training import OptimConfig, RunConfig, build_config
from longtail.training.layering import find_recipe, from_environment, list_recipes, merge, parse_override, resolve
from longtail.training.optimizer import learning_rate
from longtail.training.resuming import check_settings
from longtail.training.run_config import check_method_settings


def test_settings_round_trip() -> None:
    config = build_config({"optim": {"lr": 1, "ema": 0.9}, "loggers": ["tensorboard"], "devices": 2, "precision": 32})
    assert config.optim.lr == 1.0
    assert config.precision == "32"
    assert build_config(config.as_dict()) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 3}, "the key epoch, which does not exist\ndid you mean epochs?"),
        ({"optim": {"momentun": 0.9}}, "the key optim.momentun, which does not exist\ndid you mean optim.momentum?"),
        ({"epochs": "many"}, "epochs must be int, got 'many' in a.yaml"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"optim": 3}, "optim must be a group of settings"),
        ({"optim": {"name": "adam"}}, "optim.name must be"),
        ({"optim": {"lr": -1.0}}, "optim.lr must be positive"),
        ({"compile": 1}, "compile must be bool"),
        ({"method": {}}, "method must have a name"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_config(settings, "a.yaml")
    assert message in str(caught.value)


def test_an_argument_that_a_method_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"method\.los.*\n.*did you mean method\.loss"):
        check_method_settings(ERM, {"name": "erm", "los": "focal"}, "a.yaml")


def test_flags_beat_the_environment_beats_the_file_beats_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("epochs: 7\nbatch_size: 7\nseed: 7\nmodel: {name: resnet8}\n")
    environment = {
        "LONGTAIL_BATCH_SIZE": "8",
        "LONGTAIL_SEED": "8",
        "LONGTAIL_OPTIM__LR": "5e-2",
        "LONGTAIL_DATA": "/x",
    }
    flags = {"data": "cifar10-lt", "method": {"name": "erm"}, "seed": 9, "epochs": None}
    settings = resolve(flags, config_file=file, overrides=["optim.momentum=0.5"], environment=environment)
    assert (settings["epochs"], settings["batch_size"], settings["seed"]) == (7, 8, 9)
    assert settings["model"] == {"name": "resnet8"}
    assert settings["optim"] == find_recipe("cifar10-lt", "erm")["optim"] | {"lr": 0.05, "momentum": 0.5}
    assert settings["method"]["loss"] == "balanced_softmax"


def test_a_method_of_another_name_brings_its_own_arguments() -> None:
    below = {"method": {"name": "compound_bn", "components": 4}}
    assert merge(below, {"method": {"name": "erm"}})["method"] == {"name": "erm"}
    assert merge(below, {"method": {"components": 2}})["method"] == {"name": "compound_bn", "components": 2}
    assert merge(below, {"method": "erm"})["method"] == {"name": "erm"}


def test_quick_keeps_a_twentieth_of_the_recipes_epochs() -> None:
    assert resolve({"data": "cifar10-lt:100"}, environment={})["epochs"] == 400
    assert resolve({"data": "cifar10-lt:100"}, environment={}, budget="quick")["epochs"] == 20
    assert resolve({"data": "cifar10-lt", "epochs": 3}, environment={}, budget="quick")["epochs"] == 3


def test_a_folder_takes_the_default_recipe() -> None:
    assert resolve({"data": "some/birds/"}, environment={})["model"]["name"] == "resnet18"


@pytest.mark.parametrize("name", list_recipes())
def test_each_recipe_is_a_run(name: str) -> None:
    data, _, method = name.partition("/")
    config = build_config(find_recipe(data, method))
    assert config.method["name"] == method
    paper = data in ("cifar10-lt", "cifar100-lt", "imagenet-lt", "places-lt", "inaturalist2018", "fashion-mnist-lt")
    if paper and method in ("erm", "compound_bn", "decoupled"):  # the others have their own authors' settings
        assert (config.epochs, config.batch_size, config.optim.lr) == (400, 128, 0.05)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a.b=3", {"a": {"b": 3}}), ("a=1e-3", {"a": 0.001}), ("a=[x, y]", {"a": ["x", "y"]}), ("a=", {"a": None})],
)
def test_overrides_are_yaml(text: str, value: dict[str, object]) -> None:
    assert parse_override(text) == value


@pytest.mark.parametrize("text", ["epochs", "=3", "a=[1"])
def test_a_broken_override_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_override(text)


def test_the_environments_other_variables_are_no_settings() -> None:
    assert from_environment({"LONGTAIL_DATA": "/x", "LONGTAIL_KERNELS": "0", "PATH": "x"}) == {}


def test_resuming_may_change_the_workers_and_not_the_learning_rate() -> None:
    old = RunConfig().as_dict()
    check_settings(old, RunConfig(workers=3, max_time=1.0).as_dict())
    with pytest.raises(UsageError, match=r"cannot change optim .*\n.*\n.*free to change are .*workers"):
        check_settings(old, RunConfig(optim=OptimConfig(lr=0.5)).as_dict())


def test_the_schedule_is_torchs_warm_up_and_cosine() -> None:
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    config = OptimConfig(lr=0.3, warmup_epochs=5)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    warmup = LinearLR(optimizer, start_factor=1e-9, total_iters=5)
    theirs = SequentialLR(optimizer, [warmup, CosineAnnealingLR(optimizer, 15)], milestones=[5])
    for epoch in range(20):
        assert learning_rate(config, position=epoch / 20, epochs=20) == pytest.approx(theirs.get_last_lr()[0], abs=1e-6)
        optimizer.step()
        theirs.step()
