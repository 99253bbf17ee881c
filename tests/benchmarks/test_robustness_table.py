from benchmarks.record import read_records
from benchmarks.robustness.table import RESULTS, table
from benchmarks.studies.folders.table import fill


def test_cases_and_faults_of_all_records_are_added() -> None:
    records = [
        {"benchmark": "fuzz", "commit": "a", "metrics": {"cases": {"csv": 900, "image": 200}, "faults": ["csv 3"]}},
        {"benchmark": "fuzz", "commit": "b", "metrics": {"cases": {"csv": 5}, "faults": []}},
        {"benchmark": "kill_anywhere", "commit": "b", "metrics": {"killed_alive": 7, "broken": []}},
    ]
    kills, fuzz = table(records).splitlines()[2:]
    assert kills.endswith("| 7 | 0 | b |")
    assert fuzz.endswith("| 1,105 | 1 | a, b |")


def test_the_page_has_the_table_of_the_records() -> None:
    page = RESULTS.with_name("README.md").read_text(encoding="utf-8")
    assert fill(page, table(read_records(RESULTS))) == page
