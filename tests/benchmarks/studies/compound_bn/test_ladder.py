"""Runs of the ladder leave what the tables need, also if they diverge, and records say what was trained."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks.record import read_records
from benchmarks.studies.compound_bn.evidence import table
from benchmarks.studies.compound_bn.finished_runs import record_of
from benchmarks.studies.compound_bn.ladder import (
    READINGS,
    RESULTS,
    ROWS,
    Job,
    Setting,
    arguments,
    method_settings,
    read_runs,
    run_name,
    run_one,
)
from tests.support.ladder_records import SETTING, ladder_record, write_records

SMALL = Setting("digits-lt:50", "resnet8", 1, 64, 0.05, 5e-4)
JOB = Job("cbn_sbn_dpl", "measured", 3)
# What `measured` settled when these records were made; a runnable record says that it still does.
MEASURED: dict[str, Any] = {
    "statistics": "batch",
    "group_scheme": "interleaved",
    "component_init": "random",
    "detach_responsibilities": True,
    "update_on_split": False,
    "scale_affine": True,
    "min_mass": 2.0,
    "running_variance": "sample",
}


def _run(setting: Setting, folder: Path) -> dict[str, Any]:
    run_one(setting, JOB, folder / "run", folder / "results.jsonl")
    (record,) = read_records(folder / "results.jsonl")
    return record


def test_a_run_is_recorded_with_its_command_settings_and_last_epoch(tmp_path: Path) -> None:
    record = _run(SMALL, tmp_path)
    assert record["split"] == "test"
    assert str(record["command"]).endswith("--rows cbn_sbn_dpl --readings measured --seeds 3")
    assert record["settings"]["method"]["row"] == "cbn_sbn_dpl"
    assert record["settings"]["method"]["components"] == 4
    assert [record["metrics"]["accuracy"]["balanced"]] == list(record["metrics"]["balanced_by_epoch"].values())
    assert record["metrics"]["mixture"]["mixture/distance"] > 0.1


def test_a_run_that_diverges_is_recorded_as_such(tmp_path: Path) -> None:
    record = _run(SMALL._replace(lr=1e30), tmp_path)
    assert "epoch 1" in str(record["metrics"]["diverged"])
    (rows,) = read_runs(tmp_path / "results.jsonl").values()
    rows["baseline", "measured"] = {}
    assert "| 1 | (1 diverged) |" in table(rows)[-1]


def test_every_row_takes_every_reading_where_its_compound_bn_is() -> None:
    assert method_settings("cbn", "default_two") == {"name": "compound_bn", "row": "cbn", "components": 2}
    decoupled = method_settings("cbn_rs", "default_two")
    assert decoupled["base_settings"] == {"row": "cbn", "components": 2}
    assert "components" not in decoupled
    assert method_settings("cbn_sbn_dpl_rw", "measured")["base_settings"] == {"row": "cbn_sbn_dpl"}


def test_components_that_nothing_would_separate_start_at_random() -> None:
    assert method_settings("cbn", "plain")["reading_settings"]["component_init"] == "random"
    assert method_settings("cbn_sbn", "plain")["reading_settings"]["component_init"] == "equal"


def test_a_run_is_found_by_the_name_of_its_folder(tmp_path: Path) -> None:
    runs = [ladder_record("cbn", 0), ladder_record("cbn", 1), ladder_record("cbn", 0, epochs=20)]
    results = write_records(tmp_path, *runs)
    folder = tmp_path / run_name(SETTING._replace(epochs=20), Job("cbn", "measured", 0))
    assert record_of(folder, results) == runs[2]
    with pytest.raises(SystemExit, match="no record"):
        record_of(tmp_path / "another", results)


def _records() -> list[dict[str, Any]]:
    return list(chain.from_iterable(map(read_records, sorted(RESULTS.parent.glob("*.jsonl")))))


def test_no_two_records_are_of_one_run() -> None:
    runs = read_runs()
    assert sum(len(seeds) for rows in runs.values() for seeds in rows.values()) == len(read_records(RESULTS)) >= 225


def test_a_record_that_is_not_runnable_names_the_commit_at_which_its_command_ran() -> None:
    gone = [record for record in _records() if not record["runnable"]]
    assert gone
    assert all(len(record["commit"].removesuffix("-dirty")) == 7 for record in gone)


@pytest.mark.parametrize("setting", read_runs(), ids=str)
def test_the_command_of_a_runnable_record_trains_the_settings_of_the_record(setting: Setting) -> None:
    for (row, reading), seeds in read_runs()[setting].items():
        for seed, record in seeds.items():
            if record["runnable"]:
                assert record["command"].split()[1:] == arguments(setting, Job(row, reading, seed))
                _check_trained(method_settings(row, reading), record["settings"]["method"])
            else:
                assert reading not in READINGS
                assert row in ROWS


def _check_trained(given: dict[str, Any], trained: dict[str, Any]) -> None:
    """That a method with these settings given is the one that was trained."""
    if trained["name"] == "decoupled" and trained["base"] == "compound_bn":
        _check_trained(*({"name": "compound_bn"} | method["base_settings"] for method in (given, trained)))
        given, trained = ({k: v for k, v in method.items() if k != "base_settings"} for method in (given, trained))
    if "reading_settings" not in trained:  # plain batch norm
        assert given.items() <= trained.items()
        return
    assert given | {"reading_settings": None} == {name: trained[name] for name in given} | {"reading_settings": None}
    defaults = {"components": 4, "layers": None, "similarity_weight": 1.0, "momentum": 0.1}
    for name, value in defaults.items():
        assert given.get(name, value) == trained.get(name, value)
    norm = MEASURED | given.get("reading_settings", {})
    if trained["row"] == "sbn":  # its split passes are all it has to update by
        norm["update_on_split"] = True
    still = norm["component_init"] == "equal" and not norm["update_on_split"]
    void = {"group_scheme", "update_on_split"} if trained["row"] == "cbn" else set()
    if trained["components"] == 1:
        void |= {"group_scheme", "component_init", "detach_responsibilities", "scale_affine"}
    elif still:  # components that stay equal have constant responsibilities, whatever the temperature
        void |= {"detach_responsibilities"}
    assert set(trained.get("since_removed", {})) <= ({"temperature"} if still else set())
    assert {k: v for k, v in norm.items() if k not in void} == {
        k: v for k, v in trained["reading_settings"].items() if k not in void
    }
