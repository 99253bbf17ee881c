"""The table is that of the records."""

from typing import Any

from benchmarks.studies.methods_learn.run import REFERENCE
from benchmarks.studies.methods_learn.table import differences, runs_by_arm, table


def record(arm: str, seed: int, balanced: float) -> dict[str, Any]:
    metrics = {"balanced": balanced, "accuracy_many": 1.0, "accuracy_medium": None, "accuracy_few": 0.2, "seconds": 9.6}
    return {"arm": arm, "seed": seed, "metrics": metrics}


RECORDS = [
    record(REFERENCE, 10, 0.5),
    record(REFERENCE, 11, 0.6),
    record("paco", 10, 0.7),
    record("paco", 11, 0.7),
    record("paco", 12, 0.9),  # without a pair
]


def test_differences_are_paired_by_seed() -> None:
    runs = runs_by_arm(RECORDS)
    assert [round(value, 6) for value in differences(runs["paco"], runs[REFERENCE])] == [20.0, 10.0]


def test_the_best_comes_first_and_an_absent_group_is_empty() -> None:
    assert table(RECORDS).splitlines()[2:] == [
        "| `paco` | 3 | 76.7 ± 11.5 | 100.0 ± 0.0 |  | 20.0 ± 0.0 | +15.0 ± 7.1 | 10 |",
        f"| `{REFERENCE}` | 2 | 55.0 ± 7.1 | 100.0 ± 0.0 |  | 20.0 ± 0.0 |  | 10 |",
    ]


def test_of_two_records_of_a_seed_the_later_counts() -> None:
    assert runs_by_arm([*RECORDS, record("paco", 10, 0.1)])["paco"][10]["balanced"] == 0.1
