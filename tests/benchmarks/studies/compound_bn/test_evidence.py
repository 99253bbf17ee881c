"""The tables of the evidence: right numbers, and a page that is made of the committed runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.studies.compound_bn.evidence import (
    ADJUSTED,
    PAGE,
    USED,
    adjusted,
    compute,
    fill,
    saturation,
    table,
    tuning,
    use,
)
from benchmarks.studies.compound_bn.ladder import read_runs
from tests.support.ladder_records import SETTING, ladder_record, write_records


def _run(row: str, seed: int, balanced: float, reading: str = "measured", epochs: int = 10) -> dict[str, Any]:
    accuracy = {"balanced": balanced, "accuracy_many": balanced}
    return ladder_record(row, seed, reading, epochs, accuracy=accuracy, mixture={})


def _with(run: dict[str, Any], **metrics: Any) -> dict[str, Any]:
    return run | {"metrics": run["metrics"] | metrics}


def test_differences_are_paired_by_seed_with_the_interval_of_a_paired_t_test(tmp_path: Path) -> None:
    base, other = [0.50, 0.53, 0.49], [0.52, 0.54, 0.525]
    runs = [_run("baseline", seed, value) for seed, value in enumerate(base)]
    runs += [_run("cbn", seed, value) for seed, value in enumerate(other)]
    rows = read_runs(write_records(tmp_path, *reversed(runs)))[SETTING]
    expected = stats.ttest_rel(np.multiply(100, other), np.multiply(100, base)).confidence_interval()
    assert f"{expected.low:+.1f} to {expected.high:+.1f}" in table(rows)[-1]


@pytest.mark.parametrize(("other", "shown"), [(0.4998, "-0.0"), (0.5002, "+0.0"), (0.5, "+0.0"), (0.4, "-10.0")])
def test_a_difference_has_the_sign_it_has_before_it_is_rounded(tmp_path: Path, other: float, shown: str) -> None:
    rows = read_runs(write_records(tmp_path, _run("baseline", 0, 0.5), _run("cbn", 0, other)))[SETTING]
    assert table(rows)[-1].endswith(f"| {shown} |  |")


def test_two_seeds_have_no_interval(tmp_path: Path) -> None:
    runs = [_run(row, seed, value + seed / 10) for row, value in (("baseline", 0.5), ("cbn", 0.6)) for seed in (0, 1)]
    assert table(read_runs(write_records(tmp_path, *runs))[SETTING])[-1].endswith("| +10.0 |  |")


def test_a_seed_without_a_baseline_counts_for_the_mean_and_not_for_the_difference(tmp_path: Path) -> None:
    runs = [_run("baseline", 0, 0.5), _run("cbn", 0, 0.6), _run("cbn", 1, 0.9)]
    line = table(read_runs(write_records(tmp_path, *runs))[SETTING])[-1]
    assert line == "| +CBN |  | 2 | 75.0 ± 21.2 | 75.0 ± 21.2 | +10.0 |  |"


def test_mixtures_have_columns_where_a_run_has_one(tmp_path: Path) -> None:
    compound = _with(_run("cbn", 0, 0.6), mixture={"mixture/effective_components": 3.14159, "mixture/distance": 0.5})
    names, _, baseline, cbn = table(read_runs(write_records(tmp_path, _run("baseline", 0, 0.5), compound))[SETTING])
    assert names.endswith("| Components | Distance |")
    assert baseline.endswith("|  |  |")
    assert cbn.endswith("| 3.14 | 0.50 |")


def test_saturation_compares_each_number_of_epochs_with_the_one_before(tmp_path: Path) -> None:
    runs = read_runs(write_records(tmp_path, _run("baseline", 0, 0.5, epochs=20), _run("baseline", 0, 0.4)))
    assert saturation(runs, SETTING)[2:] == ["| 10 | 1 | 40.0 |  |", "| 20 | 1 | 50.0 | +10.0 |"]


def test_the_default_is_compared_by_seed_with_other_mixtures_and_a_baseline_of_more_epochs(tmp_path: Path) -> None:
    runs = [_with(_run("cbn_sbn_dpl", seed, value), minutes=27.4) for seed, value in enumerate((0.6, 0.62, 0.61))]
    runs += [_with(_run("baseline", seed, value), minutes=10.2) for seed, value in enumerate((0.5, 0.53, 0.53))]
    runs += [_with(_run("baseline", 1, 0.61, epochs=27), minutes=27.0)]
    runs += [_with(_run("cbn_sbn_dpl", 2, 0.58, "default_one"), minutes=20.0)]
    assert compute(read_runs(write_records(tmp_path, *runs)), SETTING)[2:] == [
        "| compound_bn | 10 | 3 | 61.0 ± 1.0 | 27 |  |  |",
        "| compound_bn, M = 1 (batch norm, same passes) | 10 | 1 | 58.0 | 20 | +3.0 |  |",
        "| Baseline (BN) | 10 | 3 | 52.0 ± 1.7 | 10 | +9.0 | +6.5 to +11.5 |",
        "| Baseline (BN) | 27 | 1 | 61.0 | 27 | +1.0 |  |",
    ]


def test_runs_are_compared_with_a_baseline_adjusted_as_is_best_on_held_out_images(tmp_path: Path) -> None:
    def by_strength(row: str, seed: int, held_out: bool, *balanced: float) -> dict[str, Any]:
        run = ladder_record(row, seed, balanced=dict(zip(("0.0", "0.4", "0.6"), balanced, strict=True)))
        run["settings"]["data"] = "cifar10-lt-val:100" if held_out else "cifar10-lt:100"
        return run

    runs = [by_strength("baseline", 0, True, 0.50, 0.57, 0.56), by_strength("baseline", 0, False, 0.50, 0.55, 0.60)]
    runs += [by_strength("cbn", 0, False, 0.54, 0.53, 0.52)]
    names, _, *lines = adjusted(read_runs(write_records(tmp_path, *runs)), SETTING)
    assert names == "| Row | Reading | Seeds | 0.0 | 0.4 | 0.6 | At 0.0 to the baseline at 0.4 | 95 % interval |"
    assert lines == [
        "| Baseline (BN) |  | 1 | 50.0 | 55.0 | 60.0 | -5.0 |  |",
        "| +CBN |  | 1 | 54.0 | 53.0 | 52.0 | -1.0 |  |",
    ]


def test_the_use_of_a_mixture_is_told_by_row(tmp_path: Path) -> None:
    shares: dict[str, Any] = {
        "as trained": 0.5,
        "ignoring the point": 0.4,
        "sure": 0.49,
        "true group": 0.3,
        "bits": 0.0625,
    }
    *_, line = use(read_runs(write_records(tmp_path, ladder_record("cbn", 0, **shares))), SETTING)
    assert line == "| +CBN |  | 1 | 50.0 | 40.0 | 49.0 | 30.0 | 0.06 |"


def test_tuning_has_a_line_for_each_learning_rate_and_weight_decay(tmp_path: Path) -> None:
    fast = _run("baseline", 0, 0.6)
    fast["settings"]["optim"] = {"lr": 0.1, "weight_decay": 1e-3}
    ours = _run("cbn_sbn_dpl", 0, 0.7), _run("cbn", 0, 0.8)
    runs = read_runs(
        write_records(tmp_path, fast, *ours, _run("baseline", 0, 0.5), _run("baseline", 0, 0.9, epochs=20))
    )
    assert tuning(runs, SETTING)[2:] == ["| 0.05 | 0.0005 | 1 | 50.0 | 1 | 70.0 |", "| 0.1 | 0.001 | 1 | 60.0 |  |  |"]


def test_a_table_is_filled_in_between_its_marks_alone(tmp_path: Path) -> None:
    runs = read_runs(write_records(tmp_path, _run("baseline", 0, 0.5)))
    page = f"before\n<!-- table {SETTING} -->old<!-- end -->\nafter <!-- end -->"
    filled = fill(page, runs)
    assert filled.startswith("before\n<!-- table")
    assert filled.endswith("<!-- end -->\nafter <!-- end -->")
    assert "old" not in filled
    assert "| Baseline (BN) |  | 1 | 50.0 | 50.0 |  |  |" in filled
    assert fill(filled, runs) == filled


def test_readings_stand_in_an_order_that_does_not_depend_on_the_lines(tmp_path: Path) -> None:
    runs = [_run("cbn", 0, 0.6, reading) for reading in ("running", "plain", "measured")]
    rows = read_runs(write_records(tmp_path, _run("baseline", 0, 0.5), *runs))[SETTING]
    assert [line.split(" | ")[1].strip() for line in table(rows)[3:]] == ["", "plain", "running"]


def test_the_ladder_has_the_default_reading_alone(tmp_path: Path) -> None:
    runs = read_runs(
        write_records(tmp_path, _run("baseline", 0, 0.5), _run("cbn", 0, 0.6), _run("cbn", 0, 0.7, "plain"))
    )
    filled = fill(f"<!-- ladder {SETTING} --><!-- end -->", runs)
    assert "| +CBN |  | 1 | 60.0 |" in filled
    assert "plain" not in filled


def test_the_published_page_is_made_of_the_committed_runs() -> None:
    assert fill(PAGE.read_text(), read_runs(), read_runs(ADJUSTED), read_runs(USED)) == PAGE.read_text()
