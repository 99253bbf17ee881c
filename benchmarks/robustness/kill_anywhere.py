"""Kill longtail at random moments of all that it does, go on each time, and compare with what was left alone.

    python -m benchmarks.robustness.kill_anywhere --kills 600 --minutes 20

A life is one folder: its run is killed again and again, at moments drawn from what is left, until the kills of that
life are used up; then it may finish, and weights, metrics, predictions and diagnostics must be those of the reference
to the bit. Lives take turns over the training of every method and preset by two ranks, over some by one, and over
evaluation, report and both exports of a finished run, whose folder must come out of it as it went in. Only a kill that
met a living process counts. `kill_and_resume` has the kills of every method by one rank.

Each call appends a record, and goes on where the records end, until together they have the kills that are asked for.
"""

import argparse
import collections
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import append_record, read_records
from benchmarks.robustness.kill_and_resume import ALL, COMPARED, SETTINGS, method_settings
from benchmarks.robustness.life import (
    BrokenLifeError,
    Life,
    Whereabouts,
    fork,
    fork_ranks,
    import_as,
    live,
    live_alone,
    one_thread,
)
from longtail.cli import run as run_command
from longtail.training import build_config, train

RESULTS = Path(__file__).parent / "results.jsonl"
NAME = "kill_anywhere"
# On images large enough for a mixture; what the methods by their recipes do not have: an average, a head.
RUNS: Mapping[str, Mapping[str, Any]] = {
    "compound_bn on digits-lt:10": {},
    "erm with an average": {"method": {"name": "erm"}, "optim": {"ema": 0.9}},
    "head": {
        "model": {"name": "resnet8", "features": "stages"},
        "method": {"name": "fine_tune"},
        "head": {"name": "linear"},
        "epochs": 2,
        "image_size": 8,
    },
}
COMMANDS: Mapping[str, Sequence[str]] = {
    "evaluate": ("evaluate", "RUN", "--split", "train"),
    "report": ("report", "RUN"),
    "export safetensors": ("export", "RUN", "--format", "safetensors"),
    "export onnx": ("export", "RUN", "--format", "onnx"),
}
# Translating a network takes a hundred times as long as the others.
SLOW = {"export onnx": 0.1}


class Lived(NamedTuple):
    """What became of a life.

    Attributes:
        title: what it did.
        met: where kills met it.
        fault: what differs, or how it failed; empty if nothing.
    """

    title: str
    met: list[str]
    fault: str


class Trainings:
    """Lives of training, each in a new folder.

    Args:
        place: where.
        draw: for the moments.
        kills: of a life.
    """

    def __init__(self, place: Path, draw: random.Random, *, kills: int) -> None:
        self.place, self._draw, self._kills = place, draw, kills
        self._references: dict[str, tuple[Path, float]] = {}
        self._lives = 0

    def life(self, folder: Path, settings: Mapping[str, Any], ranks: int) -> Life:
        """A run in `folder`, by some ranks."""

        def start(life: Life) -> list[int]:
            def work() -> None:
                train(build_config(settings), out=folder, resume=True, callback=Whereabouts(life.shared))

            return fork_ranks(work, life.log, ranks, self._draw)

        return Life(start, folder)

    def reference(self, title: str, settings: Mapping[str, Any], ranks: int) -> tuple[Path, float]:
        """The folder of a run that is left alone, made once, and how long it takes without its start."""
        if title not in self._references:
            reference = self.life(self.place / f"reference-{len(self._references)}", settings, ranks)
            seconds = live_alone(reference)
            import_as(reference.log)
            self._references[title] = reference.folder, seconds
        return self._references[title]

    def lived(self, name: str, settings: Mapping[str, Any], ranks: int) -> Lived:
        """Live one life, and forget its folder."""
        title, met = f"{name}, {ranks} rank{'s' * (ranks > 1)}", list[str]()
        life = self.life(self.place / f"life-{self._lives}", settings, ranks)
        self._lives += 1
        try:
            reference, seconds = self.reference(title, settings, ranks)
            met = live(life, self._draw, kills=self._kills, seconds=seconds)
            wrong = [part for part in COMPARED if (reference / part).read_bytes() != (life.folder / part).read_bytes()]
            return Lived(title, met, f"{', '.join(wrong)} differ" if wrong else "")
        except BrokenLifeError as error:
            said = life.log.read_text("utf-8") if life.log.exists() else ""
            return Lived(title, met, f"{error}\n{said[-4000:]}")
        finally:
            shutil.rmtree(life.folder, ignore_errors=True)

    def finished_run(self) -> Path:
        """A run to be used."""
        name = "compound_bn on digits-lt:10"
        return self.reference(f"{name}, 1 rank", SETTINGS | dict(RUNS[name]), 1)[0]


def training_lives(trainings: Trainings, *, skip: int = 0) -> Iterator[Lived]:
    """For ever: lives of training, from the one of number `skip` on."""
    teacher = trainings.place / "teacher"
    live_alone(trainings.life(teacher, method_settings("erm"), 1))
    kinds = [(name, {**SETTINGS, **changes}, ranks) for name, changes in RUNS.items() for ranks in (2, 1)]
    kinds += [(name, method_settings(name, teacher), 2) for name in ALL]
    while True:
        yield trainings.lived(*kinds[skip % len(kinds)])
        skip += 1


def command_lives(folder: Path, draw: random.Random, *, kills: int) -> Iterator[Lived]:
    """For ever: the same of commands that read the finished run in `folder`."""
    references: dict[str, tuple[dict[str, bytes], float]] = {}
    while True:
        for name, words in COMMANDS.items():
            line = [str(folder) if word == "RUN" else word for word in words]

            def start(life: Life, line: Sequence[str] = line) -> list[int]:
                life.shared[0] = 1  # it has no start of its own
                return [fork(lambda: run_command(line), life.log)]

            life, met = Life(start, folder), list[str]()
            try:
                if name not in references:
                    live_alone(life)
                    import_as(life.log)
                    seconds = live_alone(life)
                    references[name] = contents(folder), seconds
                expected, seconds = references[name]
                tries = max(1, round(kills * SLOW.get(name, 1)))
                met = live(life, draw, kills=tries, seconds=seconds, once=False)
                # Files that other commands wrote meanwhile stay.
                wrong = [part for part in differences(expected, folder) if part in expected or part.endswith(".tmp")]
                yield Lived(name, [name] * len(met), f"{', '.join(wrong)} differ" if wrong else "")
            except BrokenLifeError as error:
                yield Lived(name, [name] * len(met), f"{error}\n{life.log.read_text('utf-8')[-4000:]}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def differences(expected: Mapping[str, bytes], folder: Path) -> list[str]:
    """Which files differ, were left behind or are gone."""
    found = contents(folder)
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))


def main() -> None:
    """Kill, compare, and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=600, help="of all records together")
    parser.add_argument("--minutes", type=float, default=600, help="after which it stops with the kills that it has")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    earlier = [record["metrics"] for record in read_records(arguments.out) if record.get("benchmark") == NAME]
    before = sum(metrics["killed_alive"] for metrics in earlier)
    skip = sum(metrics["lives_of_training"] for metrics in earlier)
    draw = random.Random(f"{arguments.seed} {before}")
    deadline = time.monotonic() + 60 * arguments.minutes
    lived: list[Lived] = []
    with tempfile.TemporaryDirectory() as name, one_thread():
        trainings = Trainings(Path(name), draw, kills=4)
        read = command_lives(trainings.finished_run(), draw, kills=20)
        trained = training_lives(trainings, skip=skip)
        while before + sum(len(life.met) for life in lived) < arguments.kills and time.monotonic() < deadline:
            for source in (trained, read):
                lived.append(life := next(source))
                kills = before + sum(len(one.met) for one in lived)
                print(f"{kills} kills; {life.title}: {len(life.met)}; {life.fault or 'identical'}", flush=True)
    where = collections.Counter(place for life in lived for place in life.met)
    of: collections.Counter[str] = collections.Counter()
    for life in lived:
        of[life.title] += len(life.met)
    broken = [f"{life.title}: {life.fault}" for life in lived if life.fault]
    append_record(
        arguments.out,
        labels={"benchmark": NAME},
        command=f"python -m benchmarks.robustness.kill_anywhere --kills {arguments.kills} --seed {arguments.seed}",
        settings=SETTINGS | {"runs": RUNS, "commands": COMMANDS, "kills_before": before},
        seed=arguments.seed,
        metrics={
            "killed_alive": where.total(),
            "where": dict(where),
            "of": dict(of),
            "lives": len(lived),
            "lives_of_training": sum(life.title not in COMMANDS for life in lived),
            "identical": len(lived) - len(broken),
            "broken": broken,
        },
    )
    print(f"{len(lived) - len(broken)} of {len(lived)} lives identical, after {where.total()} kills: {dict(where)}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
