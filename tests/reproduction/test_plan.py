import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from longtail._errors import UsageError
from longtail.cli import run
from longtail.reproduction.plan import check_folders, command_of, make_plan
from longtail.reproduction.tables import list_tables, load_table
from longtail.training import build_config
from longtail.training.build_method import find_method
from longtail.training.run_folder.write import RunFolder


@pytest.mark.parametrize("budget", ["quick", "paper"])
@pytest.mark.parametrize("name", list_tables())
def test_the_command_of_a_run_resolves_to_its_settings(
    name: str, budget: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtail.training.plan_run.resolve_run", lambda config: config)  # most of the data is not here
    rows = ["cifar10-lt:100"] if name == "components" else []  # each data set of that table has the same five rows
    for planned in make_plan(load_table(name), budget=budget, seeds=[3], rows=rows).runs:
        program, *arguments = shlex.split(command_of(planned))
        assert program == "longtail"
        assert run([*arguments, "--dry-run"]) == 0
        assert build_config(yaml.safe_load(capsys.readouterr().out)) == planned.config


@pytest.mark.parametrize("name", list_tables())
def test_every_row_has_settings_that_its_method_takes(name: str) -> None:
    for planned in make_plan(load_table(name)).runs:
        kind = find_method(planned.config)
        base = planned.config.method.get("base")
        if base is not None:
            inner = {"name": base, **planned.config.method["base_settings"]}
            find_method(dataclasses.replace(planned.config, method=inner))
        assert kind


def test_the_paper_s_budget_is_the_paper_s_setting() -> None:
    plan = make_plan(load_table("components"), budget="paper")
    assert plan.seeds == (0, 1, 2)
    assert len(plan.runs) == 5 * 6 * 3
    for planned in plan.runs:
        config = planned.config
        assert (config.epochs, config.batch_size, config.model.name, config.image_size) == (400, 128, "resnet32", None)
        assert (config.optim.name, config.optim.lr) == ("sgd", 0.05)
        assert config.method["components"] == 4


def test_a_reading_reaches_compound_bn_wherever_it_is() -> None:
    for name in list_tables():
        for planned in make_plan(load_table(name), reading="appendix").runs:
            method = planned.config.method
            inner = method.get("base_settings", {}) if method.get("base") else method
            is_compound = "compound_bn" in (method["name"], method.get("base"))
            assert inner.get("reading") == ("appendix" if is_compound else None)
            find_method(planned.config)
    assert make_plan(load_table("mixtures"), reading="appendix").out == Path(
        "runs/reproduce/mixtures-quick-reading-appendix"
    )


def test_the_quick_budget_is_smaller_in_every_table() -> None:
    for name in list_tables():
        quick, paper = (make_plan(load_table(name), budget=budget, seeds=[0]).runs for budget in ("quick", "paper"))
        for small, large in zip(quick, paper, strict=True):
            assert small.config.planned_epochs <= large.config.planned_epochs / 20
            assert small.config.image_size is not None
            assert not small.config.model.pretrained
            assert small.config.method == large.config.method


def test_rows_are_chosen_by_row_data_source_or_both() -> None:
    table = load_table("components")

    def chosen(*rows: str) -> list[str]:
        return [planned.entry.key for planned in make_plan(table, rows=rows).entries]

    assert chosen("cbn@cifar10-lt:50", "sbn@*:100") == [
        "sbn@cifar10-lt:100",
        "sbn@cifar100-lt:100",
        "cbn@cifar10-lt:50",
    ]
    assert len(chosen("baseline")) == 6
    assert len(chosen("cifar10-lt:*")) == 15
    assert len(chosen("table 2")) == 30


def test_other_data_takes_each_row_once_and_has_no_number_of_the_paper() -> None:
    plan = make_plan(load_table("components"), flags={"data": "digits-lt"})
    assert [planned.entry.data for planned in plan.entries] == ["digits-lt"] * 5
    assert all(planned.entry.paper == {"top1": None} for planned in plan.entries)
    assert "25 rows are the same runs as others and are left out" in plan.remarks[0]
    assert "no numbers on digits-lt to compare with" in plan.remarks[1]


def test_data_of_the_table_keeps_its_numbers() -> None:
    plan = make_plan(load_table("datasets"), flags={"data": "cifar10-lt:50"})
    assert {planned.entry.row: planned.entry.paper["top1"] for planned in plan.entries} == {
        "mislas": 85.7,
        "ace": 84.9,
        "ib-focal": 82.4,
        "tcm": 84.3,
        "ours": 88.7,
    }


def test_settings_of_the_environment_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_plan(load_table("components"))
    monkeypatch.setenv("LONGTAIL_OPTIM__LR", "3.0")
    assert make_plan(load_table("components")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": ["cnb"]}, "--rows cnb matches no row of components"),
        ({"budget": "slow"}, "--budget must be quick or paper"),
        ({"overrides": ["seed=3"]}, "--set seed cannot be used here"),
        ({"overrides": ["devices=2"]}, "--set devices cannot be used here"),
        ({"overrides": ["optim.momentun=0.9"]}, "unknown setting optim.momentun"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(load_table("components"), **arguments)


def test_a_folder_with_a_run_of_other_settings_is_refused(tmp_path: Path) -> None:
    plan = make_plan(load_table("components"), out=tmp_path, flags={"epochs": 3})
    other = make_plan(load_table("components"), out=tmp_path, flags={"epochs": 4})
    folder = RunFolder(plan.runs[0].folder)
    folder.create()
    folder.write_config(plan.runs[0].config.as_dict())
    check_folders(plan)
    with pytest.raises(UsageError, match=r"holds a run with other settings: epochs \(3 to 4\)") as error:
        check_folders(other)
    assert len(str(error.value).splitlines()) == 3
