from pathlib import Path

import pytest
import yaml

from longtail._errors import DataError, UsageError
from longtail.methods import METHODS
from longtail.models import create_model
from longtail.training import OptimConfig, RunConfig, build_config
from longtail.training.recipes import describe_preset, find_recipe, list_presets, list_recipes
from longtail.training.settings import (
    check_settings,
    layer_settings,
    merge,
    parse_override,
    read_config,
    read_environment,
    resolve_settings,
)


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
    settings = layer_settings(flags, config=file, overrides=["optim.momentum=0.5"], environment=environment)
    assert (settings["epochs"], settings["batch_size"], settings["seed"]) == (7, 8, 9)
    assert settings["model"] == {"name": "resnet8", "pretrained": False}
    assert settings["optim"] == find_recipe("cifar10-lt", "erm")["optim"] | {"lr": 0.05, "momentum": 0.5}
    assert settings["method"]["loss"] == "balanced_softmax"


def test_an_unknown_setting_is_refused_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("optim: {lrr: 0.1}\n")
    with pytest.raises(UsageError, match=r"unknown setting optim\.lrr in .*a\.yaml\ndid you mean optim\.lr\?"):
        layer_settings({}, config=file, environment={})
    with pytest.raises(UsageError, match=r"unknown setting epochz in the environment\ndid you mean epochs\?"):
        layer_settings({}, environment={"LONGTAIL_EPOCHZ": "3"})
    with pytest.raises(UsageError, match=r"unknown setting epoch\ndid you mean epochs\?"):
        layer_settings({}, overrides=["epoch=3"], environment={})


def test_a_method_of_another_name_brings_its_own_arguments() -> None:
    below = {"method": {"name": "compound_bn", "components": 4}}
    assert merge(below, {"method": {"name": "erm"}})["method"] == {"name": "erm"}
    assert merge(below, {"method": {"components": 2}})["method"] == {"name": "compound_bn", "components": 2}
    assert merge(below, {"method": "erm"})["method"] == {"name": "erm"}


def test_a_method_without_a_recipe_keeps_its_name_and_arguments() -> None:
    settings = layer_settings({"data": "digits-lt", "method": {"name": "mine", "width": 2}}, environment={})
    assert settings["method"] == {"name": "mine", "width": 2}


def test_quick_keeps_a_twentieth_of_the_recipes_epochs() -> None:
    assert layer_settings({"data": "cifar10-lt:100"}, environment={})["epochs"] == 400
    assert layer_settings({"data": "cifar10-lt:100"}, environment={}, budget="quick")["epochs"] == 20
    assert layer_settings({"data": "cifar10-lt", "epochs": 3}, environment={}, budget="quick")["epochs"] == 3
    with pytest.raises(UsageError, match="budget must be paper or quick, got 'cheap'"):
        layer_settings({"data": "cifar10-lt"}, environment={}, budget="cheap")


def test_a_folder_takes_the_default_recipe() -> None:
    settings = layer_settings({"data": "some/birds/"}, environment={})
    assert settings["method"]["name"] == "fine_tune"
    assert settings["head"] == {"name": "linear"}


def test_from_scratch_and_the_benchmarks_are_trained_plainly() -> None:
    for given in ({"data": "birds/", "model": {"pretrained": False}}, {"data": "cifar10-lt:50"}):
        assert layer_settings(given, environment={})["method"]["name"] == "erm"
        assert layer_settings(given, environment={})["model"]["pretrained"] is False


def test_a_time_replaces_the_epochs_of_a_recipe() -> None:
    given = {"data": "cifar10-lt", "time": "10m"}
    assert "epochs" not in layer_settings(given, environment={})
    assert layer_settings(given | {"epochs": 3}, environment={})["epochs"] == 3


@pytest.mark.parametrize("name", list_recipes())
def test_each_recipe_is_a_run(name: str) -> None:
    data, _, method = name.partition("/")
    config = build_config(find_recipe(data, method))
    assert config.method["name"] == list_presets().get(method, {"name": method})["name"]
    paper = data in ("cifar10-lt", "cifar100-lt", "imagenet-lt", "places-lt", "inaturalist2018", "fashion-mnist-lt")
    if paper and method in ("erm", "compound_bn", "decoupled"):  # the others have their own authors' settings
        assert (config.epochs, config.batch_size, config.optim.lr) == (400, 128, 0.05)


@pytest.mark.parametrize("data", ["cifar10-lt", "cifar100-lt"])
@pytest.mark.parametrize(
    ("name", "starts"),
    [
        *((name, [200]) for name in ("crt", "lws", "mislas", "disalign", "los", "weight_balancing")),
        ("gistnet", [100]),
        ("dro_lt", [200, 280]),
    ],
)
def test_the_stages_of_a_recipe_have_the_epochs_of_its_authors(data: str, name: str, starts: list[int]) -> None:
    recipe = find_recipe(data, name)
    settings = {key: value for key, value in recipe["method"].items() if key != "name"}
    method = METHODS[recipe["method"]["name"]](create_model("resnet8", 3), [40, 10, 2], **settings)
    method.plan(recipe["epochs"])
    assert [round(start * recipe["epochs"], 6) for start in method.stages] == [0, *starts]


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
    assert read_environment({"LONGTAIL_DATA": "/x", "LONGTAIL_KERNELS": "0", "PATH": "x"}) == {}


def test_resuming_may_change_the_workers_and_the_learning_rate_and_not_the_momentum() -> None:
    old = RunConfig().as_dict()
    check_settings(old, RunConfig(workers=3, max_time=1.0, optim=OptimConfig(lr=0.5)).as_dict())
    with pytest.raises(
        UsageError, match=r"cannot change optim\.momentum \(0\.9 to 0\.5\)\n.*\n.*free to change are .*workers"
    ):
        check_settings(old, RunConfig(optim=OptimConfig(momentum=0.5)).as_dict())
    with pytest.raises(UsageError, match=r"cannot change method\.loss \('focal' to None\)"):
        check_settings({"method": {"name": "erm", "loss": "focal"}}, {"method": {"name": "erm"}})


def run_folder(folder: Path) -> RunConfig:
    config = RunConfig(data="digits-lt:10", method={"name": "erm"}, epochs=3, workers=1)
    (folder / "config.yaml").write_text(yaml.safe_dump(config.as_dict()))
    return config


def test_a_resumed_run_has_the_settings_of_its_folder(tmp_path: Path) -> None:
    old = run_folder(tmp_path)
    assert resolve_settings({"data": None}, resume=str(tmp_path)) == (old, tmp_path, True)
    config, _, _ = resolve_settings({}, resume=str(tmp_path), overrides=["workers=0"])
    assert config.workers == 0
    with pytest.raises(UsageError, match=r"cannot change seed \(0 to 4\)"):
        resolve_settings({"seed": 4}, resume=str(tmp_path))
    with pytest.raises(UsageError, match=r"unknown setting epoch\ndid you mean epochs\?"):
        resolve_settings({}, resume=str(tmp_path), overrides=["epoch=4"])


def test_a_resumed_run_takes_no_other_folder_or_file(tmp_path: Path) -> None:
    run_folder(tmp_path)
    with pytest.raises(UsageError, match="--out elsewhere cannot go with --resume"):
        resolve_settings({}, resume=str(tmp_path), out=Path("elsewhere"))
    with pytest.raises(UsageError, match=r"--config a\.yaml cannot go with --resume"):
        resolve_settings({}, resume=str(tmp_path), config=Path("a.yaml"))


def test_resume_auto_starts_from_the_flags() -> None:
    config, folder, resumes = resolve_settings({"data": "digits-lt", "epochs": 2}, resume="auto", out=Path("a"))
    assert (config.epochs, folder, resumes) == (2, Path("a"), True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run: it has no config.yaml"),
        ("", "is empty"),
        ("[1", "is not YAML"),
        ("- 1", "got list"),
    ],
)
def test_a_folder_without_settings_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_config(tmp_path)


def test_another_loss_drops_the_settings_of_the_one_below() -> None:
    below = {"method": {"name": "erm", "loss": "ldam", "loss_settings": {"scale": 30.0}}}
    assert merge(below, {"method": {"loss": "focal"}}) == {"method": {"name": "erm", "loss": "focal"}}
    assert merge(below, {"method": {"loss": "ldam"}}) == below
    own = {"method": {"loss": "focal", "loss_settings": {"gamma": 1.0}}}
    assert merge(below, own) == {"method": {"name": "erm"} | own["method"]}


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_names_a_method_and_its_settings_on_any_data(name: str) -> None:
    method = list_presets()[name]
    assert method["name"] in METHODS
    assert name not in METHODS
    assert describe_preset(name).endswith(".")
    for data in ("digits-lt", "cifar100-lt:50", "birds/"):
        settings = layer_settings({"data": data, "method": {"name": name, "loss": "focal"}}, environment={})
        assert settings["method"]["name"] == method["name"]
        assert settings["method"]["loss"] == "focal"  # what the user sets stays
        assert {"method", "optim"} <= settings.keys()


def test_a_preset_without_a_recipe_for_the_data_takes_that_of_its_method() -> None:
    assert find_recipe("digits-lt", "ldam_drw")["epochs"] == find_recipe("digits-lt", "erm")["epochs"]
    assert find_recipe("digits-lt", "ldam_drw")["method"]["loss"] == "ldam"
    assert find_recipe("cifar10-lt", "ldam_drw")["epochs"] == 200
