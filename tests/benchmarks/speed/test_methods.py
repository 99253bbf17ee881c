"""What a method costs is measured in each of its stages."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.record import ROOT, read_records
from benchmarks.speed import RESULTS, methods
from benchmarks.speed.methods import Cost, last_costs, measure, table
from benchmarks.studies.folders.table import fill


def test_a_method_of_stages_is_measured_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "NETWORK", "resnet8")
    monkeypatch.setattr(methods, "BATCH", 4)
    cost = measure("decoupled", 2, tmp_path)
    assert len(cost.stages) == 2
    assert cost.ratio == pytest.approx(0.8 * cost.stages[0][0] + 0.2 * cost.stages[1][0])


def test_the_cheapest_comes_first() -> None:
    costs = {"paco": Cost(1.33, 1.4, [(1.4, 1.3, 1.5)], 3.0), "erm": Cost(1.0, 1.0, [(1.0, 0.9, 1.1)], 4.0)}
    assert table(costs).splitlines()[2:] == [
        "| `erm` | 1.00 | 1.00 | 1.00 (0.90 to 1.10) | 4.0 |",
        "| `paco` | 1.33 | 1.40 | 1.40 (1.30 to 1.50) | 3.0 |",
    ]


def test_the_table_of_the_page_is_that_of_the_records() -> None:
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert fill(page, table(last_costs(read_records(RESULTS)))) == page


def test_the_last_measurement_of_a_method_counts() -> None:
    def record(ratio: float) -> dict[str, Any]:
        cost = {"passes": 9.0, "ratio": ratio, "stages": [[ratio, ratio, ratio]], "per_second": 2.0}
        return {"benchmark": "methods", "metrics": {"erm": cost}}

    costs = last_costs([record(1.2), {"benchmark": "norm_layer", "metrics": {}}, record(1.1)])
    assert costs["erm"] == Cost(1.0, 1.1, [(1.1, 1.1, 1.1)], 2.0)
