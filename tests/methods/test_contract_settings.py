"""What `Method` promises of its settings, held for every name in the registry."""

import inspect
import itertools
from typing import Any

import pytest
import torch
import yaml

from longtail.data.samplers import SAMPLERS
from longtail.data.views import VIEWS
from longtail.methods import METHODS
from tests.support.every_method import PROGRESS, each_method, method, step, trainable


def keywords(name: str) -> list[inspect.Parameter]:
    model, class_counts, *settings = inspect.signature(METHODS[name]).parameters.values()
    assert (model.name, class_counts.name) == ("model", "class_counts")
    return settings


@each_method
def test_arguments_are_keywords_whose_defaults_a_yaml_file_can_hold(name: str) -> None:
    for setting in keywords(name):
        assert setting.kind == inspect.Parameter.KEYWORD_ONLY, setting.name
        assert yaml.safe_load(yaml.safe_dump(setting.default)) == setting.default, setting.name


@each_method
def test_settings_are_complete_and_plain_and_repeat_the_method(name: str) -> None:
    trained = method(name)
    settings = trained.settings()
    assert settings.keys() == {setting.name for setting in keywords(name)} - set(METHODS[name].needs)
    read = yaml.safe_load(yaml.safe_dump(settings))
    assert read == settings
    again = method(name, **read)
    assert again.settings() == settings
    for progress in (0.0, 0.9):
        for each in (trained, again):
            each.set_progress(progress)
        assert torch.equal(step(again).loss, step(trained).loss)


@each_method
def test_settings_hold_what_the_plan_has_resolved(name: str) -> None:
    trained = method(name)
    trained.plan(7)
    again = method(name, **trained.settings())
    again.plan(7)
    assert again.settings() == trained.settings()
    assert again.stages == trained.stages


@each_method
def test_views_samplers_and_stages_are_known_at_any_time(name: str) -> None:
    trained = method(name)
    views = trained.views
    assert views
    assert set(views) <= set(VIEWS)
    for progress in PROGRESS:
        trained.set_progress(progress)
        assert trained.views == views
        assert trained.samplers
        assert set(trained.samplers) <= set(SAMPLERS)
    assert trained.stages[0] == 0
    assert all(before < after < 1 for before, after in itertools.pairwise(trained.stages))


SAMPLER_ARGUMENTS = [
    (name, setting.name) for name in METHODS for setting in keywords(name) if setting.name.endswith("sampler")
]


@pytest.mark.parametrize(("name", "argument"), SAMPLER_ARGUMENTS)
def test_any_registered_sampler_is_accepted_and_no_other(name: str, argument: str) -> None:
    for sampler in SAMPLERS:
        settings: dict[str, Any] = {argument: sampler}
        trained = method(name, **settings)
        assert sampler in trained.samplers
        assert trained.settings()[argument] == sampler
    settings = {argument: "lucky"}
    with pytest.raises(ValueError, match=r"sampler must be one of .* got 'lucky'"):
        method(name, **settings)


@each_method
def test_the_optimiser_gets_each_trainable_parameter_once_and_no_other(name: str) -> None:
    trained = method(name)
    wanted = list(trainable(trained).values())
    wanted.pop(0).requires_grad_(False)
    given = [parameter for group in trained.parameter_groups() for parameter in group["params"]]
    assert len(given) == len(wanted)
    assert {id(parameter) for parameter in given} == {id(parameter) for parameter in wanted}
