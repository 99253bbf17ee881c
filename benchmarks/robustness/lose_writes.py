"""Let the power go at random calls to the system, lose what was not flushed to the disk, and go on.

    python -m benchmarks.robustness.lose_writes --cases 200

A case is good if the last checkpoint whose writing had returned, or a later one, is there and proves itself, and if the
run goes on from it to the same bits as one that was left alone. Each call appends a record, and goes on where the
records end.
"""

import argparse
import collections
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.record import append_record, read_records
from benchmarks.robustness.flip_bits import SETTINGS, results
from benchmarks.robustness.life import fork, import_as, one_thread, wait
from benchmarks.robustness.volatile_disk import VolatileDisk
from longtail.training import Callback, build_config, train
from longtail.training.checkpoint import load_checkpoint
from longtail.training.run_folder.write import RunFolder
from tests.support.image_folders import write_image_folders

RESULTS = Path(__file__).parent / "results.jsonl"
NAME = "lose_writes"


class Loss(NamedTuple):
    """What became of a case: what was there afterwards, and what is wrong, if anything."""

    left: str
    fault: str = ""


class _Promise(Callback):
    """Says which checkpoint has been written: that of the step before this one."""

    def __init__(self, disk: VolatileDisk) -> None:
        self._disk, self._steps = disk, 0

    def step(self, **_: object) -> None:
        """The checkpoint of the step before is written."""
        self._disk.last_words, self._steps = str(self._steps), self._steps + 1


class PowerCuts:
    """Cases of a small run.

    Args:
        place: a folder for it.
    """

    def __init__(self, place: Path) -> None:
        self.place = place.resolve()
        images = write_image_folders(self.place / "images", {"wren": 14, "tit": 9, "robin": 7})
        self._config = build_config({**SETTINGS, "data": str(images)})
        self._run("reference", random.Random(0), None)
        import_as(self.place / "reference.txt")
        self.calls = int((self.place / "calls").read_text("utf-8"))
        self._expected = results(self.place / "reference" / "run")

    def lose(self, number: int) -> Loss:
        """The case of a number: the same one each time."""
        draw = random.Random(f"power cut {number}")
        while not self._run("work", draw, draw.randint(1, self.calls)):
            shutil.rmtree(self.place / "work")  # it ended before: how often a run writes depends on its speed, too
        try:
            return self._go_on()
        finally:
            for name in ("work", "image"):
                shutil.rmtree(self.place / name)

    def _run(self, name: str, draw: random.Random, crash_at: int | None) -> bool:
        """Train on a disk that loses its power; whether it did so before the end."""
        (self.place / name).mkdir()
        disk = VolatileDisk(self.place / name, self.place / "image", draw, crash_at)

        def work() -> None:
            disk.install()
            train(self._config, out=self.place / name / "run", callback=_Promise(disk))
            if crash_at is None:
                (self.place / "calls").write_text(str(disk.calls), "utf-8")

        (code,) = wait([fork(work, self.place / f"{name}.txt")])
        if code not in (0, VolatileDisk.EXIT):
            raise RuntimeError(f"ended with {code}: {(self.place / f'{name}.txt').read_text('utf-8')[-2000:]}")
        return code == VolatileDisk.EXIT

    def _go_on(self) -> Loss:
        run, log = self.place / "image" / "run", self.place / "resumed.txt"
        promised = int((self.place / "image.words").read_text("utf-8") or 0)
        found = 0
        left = "no checkpoint"
        if RunFolder(run).has_checkpoint:
            state, remark = load_checkpoint(run)
            found, left = state["progress"]["step"], "previous checkpoint" if remark else "last checkpoint"
        if found < promised:
            return Loss(left, f"step {promised} was saved, and the disk has step {found}")
        (code,) = wait([fork(lambda: train(self._config, out=run, resume=True), log)])
        if code:
            return Loss(left, f"exit code {code}: {log.read_text('utf-8')[-2000:]}")
        return Loss(left) if results(run) == self._expected else Loss(left, "other results")


def main() -> None:
    """Lose, go on, and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="of all records together")
    parser.add_argument("--minutes", type=float, default=600, help="after which it stops with the cases that it has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    first = sum(record["metrics"]["cases"] for record in read_records(arguments.out) if record.get("benchmark") == NAME)
    left: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    number = first
    with tempfile.TemporaryDirectory() as place, one_thread():
        cuts = PowerCuts(Path(place))
        while number < arguments.cases and time.monotonic() < deadline:
            loss = cuts.lose(number)
            left[loss.left] += 1
            if loss.fault:
                faults.append(f"case {number}: {loss.fault}")
                print(faults[-1], flush=True)
            number += 1
            if number % 20 == 0:
                print(f"{number} cases, {len(faults)} faults", flush=True)
    append_record(
        arguments.out,
        labels={"benchmark": NAME},
        command=f"python -m benchmarks.robustness.lose_writes --cases {arguments.cases}",
        settings={**SETTINGS, "first": first, "calls": cuts.calls},
        metrics={"cases": number - first, "left": dict(left), "faults": faults},
    )
    print(f"{number - first} cases: {dict(left)}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
