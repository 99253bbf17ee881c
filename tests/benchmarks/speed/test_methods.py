"""What a method costs is measured in each of its stages."""

from pathlib import Path

import pytest

from benchmarks.speed import methods
from benchmarks.speed.methods import Cost, measure, table


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
