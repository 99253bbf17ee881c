"""`last.ckpt`: all that a run needs to go on as if it had never stopped.

It is a dictionary of tensors and plain values, read with `weights_only=True`, so that a file from elsewhere
cannot run code. It carries a SHA-256 that is checked before anything is used. It names the classes, the settings and
the version it belongs to; these are compared before anything is loaded. The one before it stays beside it until the
run has ended.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from longtail import __version__
from longtail._errors import DataError
from longtail._files import whole_file
from longtail.training.seal import has_seal, seal_zip, zip_is_sound

FORMAT = 3
NAME, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"

Checkpoint = dict[str, Any]


def save_checkpoint(folder: Path, content: Mapping[str, Any], *, name: str = NAME) -> None:
    """Write `last.ckpt`, the one before becoming `previous.ckpt`; or a checkpoint of another name over the old one."""
    state = {"format": FORMAT, "longtail": __version__, **content}
    packed = io.BytesIO()  # in memory first: written directly, torch reports a full disk as a fault of its own
    torch.save(state, packed)
    with whole_file(folder / name, keep=folder / PREVIOUS if name == NAME else None) as out:
        out.write(seal_zip(packed.getvalue()))


def load_checkpoint(folder: Path) -> tuple[Checkpoint, str]:
    """Read `last.ckpt`, or, if it is broken, the one before it.

    Returns:
        The content, and a sentence if it is not the last one.
    """
    last, previous = folder / NAME, folder / PREVIOUS
    try:
        return read_checkpoint(last), ""
    except DataError as error:
        if error.code not in ("broken-checkpoint", "no-checkpoint") or not previous.exists():
            raise
        state = "broken" if error.code == "broken-checkpoint" else "missing"
        return read_checkpoint(previous), f"{last} is {state}; going on from the checkpoint before it"


def read_checkpoint(file: Path) -> Checkpoint:
    """Read one checkpoint file without running anything that is in it."""
    try:
        packed = file.read_bytes()
        sound = zip_is_sound(packed)
        if has_seal(packed) and not sound:
            raise ValueError("its bytes do not have the digest that was written with them")
        content = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(
            f"{file} does not exist",
            "there is nothing to resume",
            "start the run without --resume",
            code="no-checkpoint",
        ) from error
    except pickle.UnpicklingError as error:
        raise DataError(
            f"{file} holds more than weights and numbers, or is broken: {_first_line(error)}",
            "a file that runs code when it is opened is refused",
            "use a checkpoint that longtail wrote",
            code="broken-checkpoint",
            paths=[str(file)],
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # A damaged pickle may fail in any of these ways.
        raise DataError(
            f"{file} is broken: {_first_line(error)}",
            "it may have been cut off, or bits of it have changed",
            "resume from another checkpoint, or start the run anew",
            code="broken-checkpoint",
            paths=[str(file)],
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise DataError(
            f"{file} must be a checkpoint of format {FORMAT}, got {found!r}",
            "it was written by another version of longtail, or by something else",
            "resume with the version that wrote it",
            code="other-format",
            paths=[str(file)],
        )
    if not sound:
        raise DataError(
            f"{file} is broken: it has no digest",
            "nothing proves that its weights are those that were written",
            "resume from another checkpoint, or start the run anew",
            code="broken-checkpoint",
            paths=[str(file)],
        )
    return cast("Checkpoint", content)


def check_fits(content: Checkpoint, *, classes: list[str], settings: Mapping[str, Any], where: str) -> None:
    """Refuse a checkpoint of other classes or another model, naming the first difference in one line."""
    theirs = content["classes"]
    if theirs != classes:
        pair = next(((a, b) for a, b in zip(theirs, classes, strict=False) if a != b), None)
        seen = (
            f"{pair[0]!r} where the data has {pair[1]!r}" if pair else f"{len(theirs)} where there are {len(classes)}"
        )
        raise DataError(f"{where} was trained on other classes: {seen}", code="other-classes")
    for name in ("model", "method"):
        if content["config"][name] != settings[name]:
            ours, old = settings[name], content["config"][name]
            key = next(k for k in sorted({*ours, *old}) if ours.get(k) != old.get(k))
            raise DataError(
                f"{where} has {name}.{key} = {old.get(key)!r}, the run asks for {ours.get(key)!r}", code="other-model"
            )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
