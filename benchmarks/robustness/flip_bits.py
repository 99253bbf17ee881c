"""Flip one bit of a file of a run, use the run, and see that it is said or that nothing changes.

    python -m benchmarks.robustness.flip_bits --flips 1000

A flip is good in one of these ways:

    refused     exit code 2 or 3 and a message
    previous    the checkpoint before it is taken, which is said, and the run ends in the same bits
    told        what changes is said: a setting of config.yaml that a resumed run may change
    harmless    the same weights, predictions and numbers

Each call appends a record, and goes on where the records end.
"""

import argparse
import collections
import hashlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import append_record, read_records
from benchmarks.robustness.fuzz import limited, run_case
from longtail.data.embedding_cache import EmbeddingCache
from longtail.training import Callback, build_config, train
from tests.support.image_folders import write_image_folders

RESULTS = Path(__file__).parent / "results.jsonl"
NAME = "flip_bits"
SETTINGS: Mapping[str, Any] = {
    "method": {"name": "erm"},
    "model": {"name": "resnet8", "pretrained": False},
    "epochs": 2,
    "batch_size": 8,
    "image_size": 8,
    "workers": 0,
    "val_fraction": 0.3,
    "seed": 0,  # whose first epoch is the best, so that best.ckpt is used
    "keep": "best",
    "checkpoint_steps": 1,
}
# Of 100 flips, how many are in which file of a run that was stopped; of one that is finished; and in a cache.
STOPPED = {"last.ckpt": 22, "previous.ckpt": 2, "best.ckpt": 10, "config.yaml": 8, "split.csv": 6} | {
    "metrics.csv": 1,
    "log.txt": 1,
    "env.json": 1,
}
FINISHED = {"model/model.safetensors": 10, "model/config.json": 9, "predictions.csv": 8, "split.csv": 2} | {
    "model/val_predictions.csv": 4,
    "model/diagnostics.json": 4,
    "metrics.csv": 3,
    "SHA256SUMS": 2,
    "config.yaml": 2,
    "env.json": 1,
}
CACHE = 4


class Flip(NamedTuple):
    """What became of a flip: where it was, how it ended, and what is wrong with that, if anything."""

    file: str
    end: str
    fault: str = ""


class Material(NamedTuple):
    """What is flipped: a stopped run, a finished one, and what each gives when it is used."""

    stopped: Path
    finished: Path
    images: Path
    expected: dict[str, str]


class _PowerCutError(Exception):
    pass


class _Cut(Callback):
    """Ends a training after some steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, **_: object) -> None:
        self.left -= 1
        if not self.left:
            raise _PowerCutError


@contextmanager
def material() -> Iterator[Material]:
    """A run that was cut in its last step but one, and the same one finished."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        place = Path(name)
        # The pixels follow from the relative names, so that they are always the same.
        images = write_image_folders(Path("images"), {"wren": 14, "tit": 9, "robin": 7})
        config = build_config({**SETTINGS, "data": str(images)})
        with suppress(_PowerCutError):
            train(config, out=place / "stopped", callback=_Cut(4))
        shutil.copytree(place / "stopped", place / "finished")
        use_stopped(place / "finished")
        expected = {"stopped": results(place / "finished")}
        for use in USES.values():
            expected[use.__name__] = use(place / "finished", images)[1]
        yield Material(place / "stopped", place / "finished", images, expected)


def results(run: Path) -> str:
    """The digest of all that a run comes to."""
    names = ("model/model.safetensors", "metrics.csv", "predictions.csv", "model/val_predictions.csv")
    return hashlib.sha256(b"".join((run / name).read_bytes() for name in names)).hexdigest()


def use_stopped(run: Path) -> tuple[int, str, str]:
    """Exit code, results and words of a resumed run."""
    done = run_case(["train", "--resume", str(run)])
    if done.fault:
        raise RuntimeError(done.fault)
    return done.code, results(run) if done.code == 0 else "", done.said


def report(run: Path, _: Path) -> tuple[int, str, str]:
    """The numbers of its report."""
    done = run_case(["report", str(run)])
    if done.fault:
        raise RuntimeError(done.fault)
    if done.code:
        return done.code, "", done.said
    page = (run / "report.html").read_text("utf-8")
    found = re.search(r'id="longtail-data">(.*?)</script>', page)
    numbers = json.loads(found[1]) if found else {}
    for key in ("title", "config", "environment", "command"):
        numbers.pop(key)
    pictures = "".join(re.findall("data:image[^\"']+", page))
    return 0, json.dumps(numbers) + pictures, ""


def predict(run: Path, images: Path) -> tuple[int, str, str]:
    """The predictions of new images."""
    done = run_case(["predict", str(run), str(images), "--json"])
    if done.fault:
        raise RuntimeError(done.fault)
    return done.code, done.said if done.code == 0 else "", done.said


def evaluate(run: Path, _: Path) -> tuple[int, str, str]:
    """The numbers on its own training images."""
    done = run_case(["evaluate", str(run), "--split", "train"])
    if done.fault:
        raise RuntimeError(done.fault)
    return done.code, done.said.replace(str(run), "RUN") if done.code == 0 else "", done.said


USES: Mapping[str, Callable[[Path, Path], tuple[int, str, str]]] = {
    "model/model.safetensors": predict,
    "model/config.json": predict,
    "split.csv": evaluate,
    "predictions.csv": report,
}


def flip(content: bytes, draw: random.Random) -> bytes:
    """One bit changed."""
    changed, bit = bytearray(content), draw.randrange(8 * len(content))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_stopped(file: str, draw: random.Random, found: Material, place: Path) -> Flip:
    """Flip a bit of a stopped run, and resume it."""
    run = Path(shutil.copytree(found.stopped, place / "run"))
    (run / file).write_bytes(flip((run / file).read_bytes(), draw))
    try:
        code, came, said = use_stopped(run)
    except RuntimeError as error:
        return Flip(file, "fault", str(error))
    if code:
        return _refused(file, code, said)
    if came == found.expected["stopped"]:
        return Flip(file, "previous" if "going on from the checkpoint before it" in said else "harmless")
    told = file == "config.yaml" and re.search("changes from|changed since the last checkpoint|trains on", said)
    return Flip(file, "told") if told else Flip(file, "fault", f"other results, in silence: {said[-600:]}")


def flip_finished(file: str, draw: random.Random, found: Material, place: Path) -> Flip:
    """Flip a bit of a finished run, and use what it is for."""
    run = Path(shutil.copytree(found.finished, place / "run"))
    (run / file).write_bytes(flip((run / file).read_bytes(), draw))
    use = USES.get(file, report)
    try:
        code, came, said = use(run, found.images)
    except RuntimeError as error:
        return Flip(file, "fault", str(error))
    if code:
        return _refused(file, code, said)
    if came == found.expected[use.__name__]:
        return Flip(file, "harmless")
    return Flip(file, "fault", f"{use.__name__} says other things, in silence")


def flip_cache(draw: random.Random, place: Path) -> Flip:
    """Flip a bit of a cache of embeddings: a row is what was written, or is not there."""
    file = "cache of embeddings"
    cache = EmbeddingCache({"weights": "none"}, place / "cache")
    rows = np.frombuffer(draw.randbytes(20 * 8 * 4), np.uint32).reshape(20, 8).astype(np.float32)
    digests = [draw.randbytes(32) for _ in rows]
    cache.write(digests, rows)
    (written,) = cache.folder.glob("*.safetensors")
    written.write_bytes(flip(written.read_bytes(), draw))
    read = cache.read()
    wrong = [key for key, row in read.items() if key not in digests or (row != rows[digests.index(key)]).any()]
    return Flip(file, "fault", f"{len(wrong)} other rows") if wrong else Flip(file, "harmless" if read else "refused")


def _refused(file: str, code: int, said: str) -> Flip:
    lines = [line for line in said.splitlines() if line.startswith("longtail: ")]
    if code in (2, 3) and lines:
        return Flip(file, "refused")
    return Flip(file, "fault", f"exit code {code}: {said[-600:]}")


def flip_number(number: int, found: Material) -> Flip:
    """The flip of a number: the same one each time."""
    draw = random.Random(f"flip {number}")
    kinds = [*STOPPED.items(), *FINISHED.items(), ("", CACHE)]
    which = draw.choices(range(len(kinds)), [share for _, share in kinds])[0]
    with tempfile.TemporaryDirectory() as name:
        if which < len(STOPPED):
            return flip_stopped(kinds[which][0], draw, found, Path(name))
        if which < len(kinds) - 1:
            return flip_finished(kinds[which][0], draw, found, Path(name))
        return flip_cache(draw, Path(name))


def main() -> None:
    """Flip, use, and append the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000, help="of all records together")
    parser.add_argument("--minutes", type=float, default=600, help="after which it stops with the flips that it has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    out, deadline = arguments.out.resolve(), time.monotonic() + 60 * arguments.minutes
    first = sum(record["metrics"]["flips"] for record in read_records(out) if record.get("benchmark") == NAME)
    ends: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    faults: list[str] = []
    number = first
    with limited(), material() as found:
        while number < arguments.flips and time.monotonic() < deadline:
            done = flip_number(number, found)
            ends[done.file][done.end] += 1
            if done.fault:
                faults.append(f"flip {number}, {done.file}: {done.fault}")
                print(faults[-1], flush=True)
            number += 1
            if number % 50 == 0:
                print(f"{number} flips, {len(faults)} faults", flush=True)
    append_record(
        out,
        labels={"benchmark": NAME},
        command=f"python -m benchmarks.robustness.flip_bits --flips {arguments.flips}",
        settings={**SETTINGS, "first": first},
        metrics={
            "flips": number - first,
            "ends": {file: dict(counts) for file, counts in ends.items()},
            "faults": faults,
        },
    )
    total: collections.Counter[str] = sum(ends.values(), collections.Counter())
    print(f"{number - first} flips: {dict(total)}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
