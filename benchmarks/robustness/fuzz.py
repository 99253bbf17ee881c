"""Give longtail settings, lists, files and images that are broken in seeded ways, through its real command line.

    python -m benchmarks.robustness.fuzz --cases 20000

A case is good if the command ends with one of its promised exit codes, 0, 2, 3, 4 or 5, within a time limit, and shows
no traceback. Exit code 1 is a bug of longtail, whatever the input. A failed case says how to repeat it: its kind and
its number, `--only KIND --first N --cases 1`.

Each call appends a record, and goes on where the records end, until together they have the cases that are asked for.
"""

import argparse
import collections
import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.record import ROOT, append_record, read_records
from benchmarks.robustness.broken_files import (
    break_bytes,
    break_checkpoint,
    break_csv,
    break_description,
    break_image,
    break_list,
    break_text,
)
from benchmarks.robustness.broken_settings import break_settings
from longtail.cli import run as run_command

RESULTS = Path(__file__).parent / "results.jsonl"
PROMISED = {0, 2, 3, 4, 5}
_SECONDS = 120  # for a case, on a machine with other work
_GIGABYTES = 8

# How many of a hundred cases each kind has.
SHARES = {"settings": 28, "csv": 16, "list": 12, "description": 12, "files": 10, "checkpoint": 4, "image": 18}


class HangError(BaseException):
    """A case took too long; no handler of longtail may swallow it."""


@dataclass(frozen=True)
class Material:
    """What cases are made of.

    Args:
        run: a finished run.
        stopped: one that was stopped.
        images: a folder with two class folders.
        sets: a root with the layout of a benchmark.
    """

    run: Path
    stopped: Path
    images: Path
    sets: Path


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    code: int
    seconds: float
    said: str
    fault: str


def run_case(arguments: Sequence[str], variables: dict[str, str] | None = None, seconds: float = _SECONDS) -> Outcome:
    """Run one command line in this process, and judge it."""
    shown, said = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"), io.StringIO()
    before, code, fault = dict(os.environ), 1, ""
    os.environ.update(variables or {})
    start = time.monotonic()
    signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
            code = run_command(arguments)
    except HangError:
        fault = f"took more than {seconds} s"
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        fault = f"let through {error!r}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.environ.clear()
        os.environ.update(before)
    shown.flush()
    text = said.getvalue() + shown.buffer.getvalue().decode("utf-8") if isinstance(shown.buffer, io.BytesIO) else ""
    if not fault and code not in PROMISED:
        report = re.search(r"report it with the file (\S+)", text)
        trace = Path(report[1]).read_text().splitlines() if report else []
        if report:
            Path(report[1]).unlink()
        places = [line.strip().replace(f"{ROOT}/", "") for line in trace if line.strip().startswith("File")]
        places = [place for place in places if "longtail" in place]
        fault = f"exit code {code}: {text.splitlines()[0] if text else ''} ({places[-1] if places else ''})"
    if not fault and "Traceback" in text:
        fault = "showed a traceback"
    if not fault and (raw := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text.replace("\r\n", "\n"))):
        fault = f"showed the control character {raw[0]!r}"
    return Outcome(code, time.monotonic() - start, text, fault)


def _hang(*_: object) -> None:
    raise HangError


@contextlib.contextmanager
def material() -> Iterator[Material]:
    """A small run, a stopped one, and images."""
    from tests.support.image_folders import write_image_folders

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        images = write_image_folders(place / "images", {"wren": 6, "tit": 4})
        common = ["--method", "erm", "--model", "resnet8", "--image-size", "8", "--workers", "0", "--batch-size", "4"]
        common += ["--from-scratch"]
        run = ["train", str(images), *common, "--epochs", "1", "--out", str(place / "run")]
        stop = ["train", str(images), *common, "--epochs", "3", "--out", str(place / "stopped"), "--max-time", "0"]
        sets = place / "sets"
        (sets / "imagenet-lt").mkdir(parents=True)
        for command in (run, stop):
            if (outcome := run_case(command)).code:
                raise RuntimeError(f"{' '.join(command)}: {outcome.said}")
        yield Material(place / "run", place / "stopped", images, sets)


Case = Callable[[random.Random, Material, Path], Outcome]


def _settings(draw: random.Random, _: Material, place: Path) -> Outcome:
    words, variables = break_settings(draw, place)
    base = ["train", "digits-lt", "--dry-run", "--epochs", "3", "--model", "resnet8", "--batch-size", "64"]
    return run_case([*base, *words], variables)


def _csv(draw: random.Random, found: Material, _: Path) -> Outcome:
    file = found.images / f"list{draw.randrange(10)}.csv"
    file.write_bytes(break_csv(draw, found.images))
    command = draw.choice([["check", str(file)], ["predict", str(found.run), str(file)]])
    try:
        return run_case(command)
    finally:
        file.unlink()


def _list(draw: random.Random, _: Material, place: Path) -> Outcome:
    break_list(draw, place)
    return run_case(["check", f"imagenet-lt:{place}"])


def _copy(source: Path, place: Path) -> Path:
    shutil.copytree(source, place / "copy")
    return place / "copy"


def _description(draw: random.Random, found: Material, place: Path) -> Outcome:
    copy = _copy(found.run, place)
    break_description(draw, copy / "model" / "config.json")
    image = str(found.images / "tit" / "0.png")
    commands = [["predict", str(copy), image], ["export", str(copy), "--format", "safetensors"], ["report", str(copy)]]
    return run_case(draw.choice(commands))


def _files(draw: random.Random, found: Material, place: Path) -> Outcome:
    copy = _copy(found.run, place)
    names = ("config.yaml", "metrics.csv", "predictions.csv", "split.csv", "model/diagnostics.json", "env.json")
    file = copy / draw.choice([*names, "model/val_predictions.csv", "model/model.safetensors"])
    if file.exists():
        content = file.read_bytes()
        file.write_bytes(draw.choice([break_bytes, break_text])(draw, content))
    commands = [["report", str(copy)], ["evaluate", str(copy)], ["evaluate", str(copy), "--split", "train"]]
    commands += [["predict", str(copy), str(found.images / "tit" / "0.png")], ["train", "--resume", str(copy)]]
    return run_case(draw.choice(commands))


def _checkpoint(draw: random.Random, found: Material, place: Path) -> Outcome:
    copy = _copy(found.stopped, place)
    (copy / "previous.ckpt").unlink(missing_ok=True)
    break_checkpoint(draw, copy / "last.ckpt")
    return run_case(["train", "--resume", str(copy)])


def _image(draw: random.Random, found: Material, place: Path) -> Outcome:
    images = place / "images"
    shutil.copytree(found.images, images)
    for number in range(IMAGES):
        break_image(draw, images / draw.choice(["wren", "tit"]), number)
    commands = [["check", "--full", str(images)], ["check", str(images)], ["predict", str(found.run), str(images)]]
    return run_case(draw.choice(commands))


IMAGES = 10  # of a case of images, which counts as so many
KINDS: dict[str, Case] = {
    "settings": _settings,
    "csv": _csv,
    "list": _list,
    "description": _description,
    "files": _files,
    "checkpoint": _checkpoint,
    "image": _image,
}


def fuzz(kind: str, number: int, found: Material) -> Outcome:
    """Run the case `number` of a kind: the same one each time."""
    draw = random.Random(f"{kind} {number}")
    with tempfile.TemporaryDirectory() as name:
        return KINDS[kind](draw, found, Path(name))


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """No network, one thread, a folder of its own to work in, and a limit of memory instead of the kernel's killer."""
    before, threads = Path.cwd(), torch.get_num_threads()
    old = resource.getrlimit(resource.RLIMIT_AS)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        resource.setrlimit(resource.RLIMIT_AS, (_GIGABYTES << 30, old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, old)
            os.chdir(before)
            torch.set_num_threads(threads)


def main() -> None:
    """Run the cases, print the faults, and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="of all records together")
    parser.add_argument("--first", type=int, help="the round to begin with, instead of where the records end")
    parser.add_argument("--only", choices=sorted(KINDS))
    parser.add_argument("--minutes", type=float, default=600, help="after which it stops with the cases that it has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    repeats = arguments.only is not None or arguments.first is not None
    records = [] if repeats else [found for found in read_records(arguments.out) if found.get("benchmark") == "fuzz"]
    earlier = [record["metrics"] for record in records if "rounds" in record["metrics"]]
    deadline = time.monotonic() + 60 * arguments.minutes
    shares = {arguments.only: 100} if arguments.only else SHARES
    cases: collections.Counter[str] = collections.Counter()
    codes: collections.Counter[int] = collections.Counter()
    faults: list[str] = []
    slowest = 0.0
    first = arguments.first or sum(metrics["rounds"] for metrics in earlier)
    round_, total = first, sum(sum(metrics["cases"].values()) for metrics in earlier)
    out = arguments.out.resolve()
    with limited(), material() as found:
        while total < arguments.cases and time.monotonic() < deadline:
            for kind, share in shares.items():
                weight = IMAGES if kind == "image" else 1
                often = 1 if arguments.only else max(1, share // weight)
                for number in range(round_ * often, (round_ + 1) * often):
                    outcome = fuzz(kind, number, found)
                    cases[kind] += weight
                    total += weight
                    codes[outcome.code] += weight
                    slowest = max(slowest, outcome.seconds)
                    if outcome.fault:
                        faults.append(f"{kind} {number}: {outcome.fault}")
                        print(faults[-1], flush=True)
            round_ += 1
            if not arguments.only or round_ % 100 == 0:
                print(f"{total} cases, {len(faults)} faults, {dict(codes)}", flush=True)
    if not repeats:
        append_record(
            out,
            labels={"benchmark": "fuzz"},
            command=f"python -m benchmarks.robustness.fuzz --cases {arguments.cases}",
            settings={"shares": shares, "seconds": _SECONDS, "gigabytes": _GIGABYTES},
            metrics={
                "cases": dict(cases),
                "rounds": round_ - first,
                "exit_codes": dict(codes),
                "slowest_seconds": slowest,
                "faults": faults,
            },
        )
    print(f"{total} cases, {len(faults)} faults; the slowest took {slowest:.1f} s")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
