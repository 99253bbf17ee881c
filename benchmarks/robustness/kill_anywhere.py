"""Kill longtail at random moments of all that it does, go on each time, and compare with what was left alone.

    python -m benchmarks.robustness.kill_anywhere --kills 1000

A life is one folder: its run is killed again and again, at moments drawn from the whole of what is left, until the
kills of that life are used up; then it may finish, and weights, metrics, predictions and diagnostics must be those of
the reference to the bit. Lives take turns over training by one rank and by two, over methods with one stage, with two,
with a moving average and with a head on a frozen network, and over evaluation, report and both exports of a finished
run, whose folder must come out of it as it went in. Only a kill that met a living process counts.
"""

import argparse
import collections
import contextlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import append_record
from benchmarks.robustness.kill_and_resume import COMPARED, SETTINGS
from longtail.cli import run as run_command
from longtail.training import Callback, build_config, train

RESULTS = Path(__file__).parent / "results.jsonl"
PLACES = ("start", "training", "checkpoint", "epoch", "evaluation", "report")
RUNS: Mapping[str, Mapping[str, Any]] = {
    "compound_bn": {},
    "erm with ema": {"method": {"name": "erm"}, "optim": {"ema": 0.9}},
    "decoupled": {"method": {"name": "decoupled"}, "epochs": 5},
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


class Whereabouts(Callback):
    """Tells the parent, through shared memory, what the child is doing."""

    def __init__(self, shared: mmap) -> None:
        self.shared = shared

    def step(self, **_: object) -> None:
        """Training."""
        self.shared[0] = PLACES.index("training")

    def epoch(self, _: object) -> None:
        """An epoch is over."""
        self.shared[0] = PLACES.index("epoch")

    def progress(self, *_: object) -> None:
        """A split is predicted."""
        self.shared[0] = PLACES.index("evaluation")

    def say(self, message: str) -> None:
        """The report is announced."""
        if message == "writing the report":
            self.shared[0] = PLACES.index("report")


@dataclass
class Life:
    """What is started again and again; a child for each rank."""

    start: Callable[[mmap], list[int]]
    folder: Path
    shared: mmap = field(default_factory=lambda: mmap(-1, 1))

    def place(self) -> str:
        """Where it is now."""
        if (self.folder / ".last.ckpt.tmp").exists():
            return "checkpoint"
        return PLACES[self.shared[0]]


def fork(work: Callable[[], int | None], **variables: str) -> int:
    """Do something in a new process, silently; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.environ.update(variables)
        code = int(work() or 0)
    finally:
        os._exit(code)  # none of the parent's own clean-up


def start_training(folder: Path, changes: Mapping[str, Any], ranks: int, shared: mmap) -> list[int]:
    """Start or resume a run by some ranks, as torchrun does, without its agent."""

    def work() -> None:
        train(build_config(SETTINGS | dict(changes)), out=folder, resume=True, callback=Whereabouts(shared))

    shared[0] = 0
    if ranks == 1:
        return [fork(work)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    everybody = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": port,
    }
    return [fork(work, RANK=str(rank), LOCAL_RANK=str(rank), **everybody) for rank in range(ranks)]


def wait(children: Sequence[int], *, seconds: float = 300) -> list[int]:
    """The exit codes of processes; those that take too long are ended and have the code -9."""
    deadline = time.monotonic() + seconds
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    codes[child] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    return [codes[child] for child in children]


def kill_once(life: Life, draw: random.Random, *, within: float) -> str | None:
    """Start, wait, kill one of the children; where that met it, or None if it had ended well."""
    children = life.start(life.shared)
    time.sleep(draw.uniform(0, within))
    victim = draw.choice(children)
    done, status = os.waitpid(victim, os.WNOHANG)
    if done:
        others = wait([child for child in children if child != victim])
        if codes := [code for code in (os.waitstatus_to_exitcode(status), *others) if code]:
            raise RuntimeError(f"{life.folder.name} ended by itself with {codes}")
        return None
    place = life.place()
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    for child in children:  # the other rank waits for ever: torchrun ends it
        if child != victim:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return place


def live(life: Life, draw: random.Random, *, kills: int, seconds: float) -> list[str]:
    """Kill a life some times, then let it finish; returns where the kills met it."""
    met: list[str] = []
    for _ in range(kills):
        place = kill_once(life, draw, within=seconds)
        if place is None:
            break
        met.append(place)
    if any(codes := wait(life.start(life.shared))):
        raise RuntimeError(f"{life.folder.name} could not go on: {codes}")
    return met


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def differences(expected: Mapping[str, bytes], folder: Path) -> list[str]:
    """Which files differ, were left behind or are gone."""
    found = contents(folder)
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A forked process must not wait for threads that only its parent has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def training_lives(place: Path, draw: random.Random, *, kills: int) -> Iterator[tuple[str, Life, list[str], list[str]]]:
    """For ever: the name of a life of training, the life, where it was killed, and what differs."""
    references: dict[str, tuple[Path, float]] = {}
    number = 0
    while True:
        for name, changes in RUNS.items():
            for ranks in (1, 2):
                title = f"{name}, {ranks} rank{'s' * (ranks > 1)}"
                life = training_life(place / f"life-{number}", changes, ranks)
                if title not in references:
                    reference = training_life(place / f"reference-{len(references)}", changes, ranks)
                    start = time.monotonic()
                    if any(codes := wait(reference.start(reference.shared))):
                        raise RuntimeError(f"the reference of {title} ended with {codes}")
                    references[title] = reference.folder, time.monotonic() - start
                reference_folder, seconds = references[title]
                met = live(life, draw, kills=kills, seconds=seconds)
                wrong = [
                    part
                    for part in COMPARED
                    if (reference_folder / part).read_bytes() != (life.folder / part).read_bytes()
                ]
                number += 1
                yield title, life, met, wrong


def training_life(folder: Path, changes: Mapping[str, Any], ranks: int) -> Life:
    """A run in `folder`, by some ranks."""
    return Life(lambda shared: start_training(folder, changes, ranks, shared), folder)


def command_lives(folder: Path, draw: random.Random, *, kills: int) -> Iterator[tuple[str, Life, list[str], list[str]]]:
    """For ever: the same of commands that read the finished run in `folder`."""
    references: dict[str, tuple[dict[str, bytes], float]] = {}
    while True:
        for name, words in COMMANDS.items():
            line = [str(folder) if word == "RUN" else word for word in words]

            def start(shared: mmap, line: Sequence[str] = line) -> list[int]:
                shared[0] = PLACES.index("start")
                return [fork(lambda: run_command(line))]

            life = Life(start, folder)
            if name not in references:
                begin = time.monotonic()
                if any(codes := wait(life.start(life.shared))):
                    raise RuntimeError(f"{name} ended with {codes}")
                references[name] = contents(folder), time.monotonic() - begin
            expected, seconds = references[name]
            met = live(life, draw, kills=kills, seconds=seconds)
            # Files that other commands wrote meanwhile stay.
            wrong = [part for part in differences(expected, folder) if part in expected or part.endswith(".tmp")]
            yield name, life, [name] * len(met), wrong


def main() -> None:
    """Kill, compare, and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=600, help="after which it stops with the kills that it has")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw, deadline = random.Random(arguments.seed), time.monotonic() + 60 * arguments.minutes
    met: collections.Counter[str] = collections.Counter()
    by_life: collections.Counter[str] = collections.Counter()
    lives, broken = 0, []
    with tempfile.TemporaryDirectory() as name, one_thread():
        place = Path(name)
        trained = training_lives(place, draw, kills=8)
        read = command_lives(place / "reference-0", draw, kills=4)
        while met.total() < arguments.kills and time.monotonic() < deadline:
            for source in (trained, trained, read):
                title, life, places, wrong = next(source)
                lives += 1
                met.update(places)
                by_life[title] += len(places)
                broken += [f"life {lives}, {title}: {', '.join(wrong)}"] if wrong else []
                print(f"{met.total()} kills; {title}: {len(places)} kills, {wrong or 'identical'}", flush=True)
                if source is trained:
                    for file in sorted(life.folder.rglob("*"), reverse=True):
                        file.rmdir() if file.is_dir() else file.unlink()
    append_record(
        RESULTS,
        labels={"benchmark": "kill_anywhere"},
        command=f"python -m benchmarks.robustness.kill_anywhere --kills {arguments.kills} --seed {arguments.seed}",
        settings=SETTINGS | {"runs": RUNS, "commands": COMMANDS},
        seed=arguments.seed,
        metrics={
            "killed_alive": met.total(),
            "where": dict(met),
            "of": dict(by_life),
            "lives": lives,
            "identical": lives - len(broken),
            "broken": broken,
        },
    )
    print(f"{lives - len(broken)} of {lives} lives identical, after {met.total()} kills: {dict(met)}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
