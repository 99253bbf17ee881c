"""Refuse, before any work, what cannot fit into the memory of this machine, instead of meeting the system's killer.

The bounds are what is needed at least: a batch of images as numbers, a score of each class for each image that is
measured, a count for each pair of classes. What a network needs beside them is found out by training it.
"""

import os
import resource
from pathlib import Path

from longtail._errors import MemoryFullError, counted

# Limits of a container, in bytes or "max".
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# Scores are gathered, stacked, made probabilities and written.
_COPIES = 4
_FLOAT, _COUNT = 4, 8


def room_in_memory() -> int:
    """The bytes that this process may have: of the machine, its container or a limit such as `ulimit -v`."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    told = [file.read_text(encoding="ascii").strip() for file in _CONTAINER if file.is_file()]
    limits += [int(text) for text in told if text.isdigit()]
    if (soft := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        limits.append(soft)
    return min(limits)


def refuse_many_scores(images: int, classes: int) -> None:
    """Refuse to measure so many images of so many classes if their scores do not fit."""
    _refuse(
        _COPIES * _FLOAT * images * classes + _COUNT * classes**2,
        f"the scores of {counted(images, 'image')} for {counted(classes, 'class')}",
        "measure fewer images, join classes, or use a machine with more memory",
    )


def refuse_large_batch(images: int, channels: int, size: int) -> None:
    """Refuse batches of so many images of so many pixels if one does not fit."""
    _refuse(
        _FLOAT * images * channels * size**2,
        f"a batch of {counted(images, 'image')} at {size} px",
        f"use --batch-size {max(2, images // 8)}, or a smaller --image-size",
    )


def _refuse(needed: int, what: str, fix: str) -> None:
    if needed > (room := room_in_memory()):
        raise MemoryFullError(
            f"{what} take{'s' if what.startswith('a ') else ''} {needed / 2**30:,.1f} GiB, and there are "
            f"{room / 2**30:,.1f} GiB",
            "the system would end the work in the middle of it",
            fix,
        )
