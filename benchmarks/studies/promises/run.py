"""Adjust finished runs in each of three ways, and record what was promised on validation and what held on test.

    python -m benchmarks.studies.promises.run RUN ...      # records
    python -m benchmarks.studies.promises.run              # the table of README.md alone

A run is copied first and stays as it is. Nothing is chosen on test images.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.record import append_record, read_records
from benchmarks.studies.folders.table import fill
from longtail.evaluation import Estimate, verdict
from longtail.training.run_folder.adjust import adjust
from longtail.training.run_folder.read import open_run

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
# What is asked of `longtail adjust`.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "--temperature auto": {"temperature": "auto"},
    "--tau auto --temperature auto": {"tau": "auto", "temperature": "auto"},
    "--prior train": {"prior": "train"},
    "--precision 0.95": {"precision": 0.95},
}
_NUMBERS = {"accuracy": "Accuracy", "ece": "Calibration error"}


def record_run(folder: Path) -> None:
    """Adjust copies of the run in `folder`, a record for each way."""
    settings = open_run(folder).settings
    environment = json.loads((folder / "env.json").read_text(encoding="utf-8"))
    for flags, arguments in WAYS.items():
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(shutil.copytree(folder, Path(scratch) / "run"))
            found = adjust(run, **arguments)
        assert found.decision.promised is not None
        append_record(
            RESULTS,
            command=f"longtail adjust RUN {flags}",
            settings={"trained": f"longtail {environment['command'].partition(' ')[2]}"},
            metrics={
                "decision": {"tau": found.decision.tau, "temperature": found.decision.temperature}
                | {"abstain_below": found.decision.abstain_below, "how": dict(found.decision.how)},
                "validation": {
                    "before": asdict(found.decision.before or found.before),
                    "promised": asdict(found.decision.promised),
                },
                "test": {"before": asdict(found.before), "held": asdict(found.held)},
            },
            seed=settings["seed"],
            labels={"study": "promises", "data": Path(str(settings["data"])).name, "way": flags},
        )


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """A row for each data set, seed and way."""
    header = ["Data", "Seed", "`longtail adjust RUN`", "Number", "Before", "Promised", "Held", "Promise"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    latest = {(r["data"], r["way"], r["seed"]): r for r in records}
    for (data, way, seed), record in sorted(latest.items()):
        for key, name in _numbers(way).items():
            metrics = record["metrics"]
            promised = Estimate(**metrics["validation"]["promised"][key])
            held = Estimate(**metrics["test"]["held"][key])
            before = 100 * metrics["test"]["before"][key]["value"]
            told = verdict(promised, held, lower_is_better=key == "ece")
            cells = [data, str(seed), f"`{way}`", name, f"{before:.1f}", _percent(promised), _percent(held), told]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _numbers(way: str) -> Mapping[str, str]:
    return {"answered": "Predicted", "precision": "Right of these"} if "precision" in way else _NUMBERS


def _percent(found: Estimate) -> str:
    ends = "" if found.low is None or found.high is None else f" ({100 * found.low:.1f} to {100 * found.high:.1f})"
    return f"{100 * found.value:.1f}{ends}"


def main() -> None:
    """Record the runs that are named, and fill in the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    for folder in parser.parse_args().runs:
        record_run(folder)
    records = read_records(RESULTS)
    if records:
        page = HERE / "README.md"
        page.write_text(fill(page.read_text(encoding="utf-8"), table(records)), encoding="utf-8")


if __name__ == "__main__":
    main()
