"""Put the predictions of several runs side by side: row i is the same image in all, column k the same class.

A paired comparison means nothing unless this holds, and the files do not guarantee it: two runs may list the same
images, or the same classes, in different orders.
"""

from collections.abc import Mapping

import numpy as np

from longtail._errors import counted
from longtail.evaluation._arrays import Floats, Ints
from longtail.evaluation.predictions import Predictions


def align_predictions(runs: Mapping[str, Predictions]) -> tuple[dict[str, Floats], Ints]:
    """The logits of each run in the order of the first run's images and classes, and the labels.

    Raises:
        ValueError: the runs do not have the same images, classes and labels; the message says which differ.
    """
    if not runs:
        raise ValueError("runs must name at least one run, got none")
    first, *_ = runs
    reference = runs[first]
    logits: dict[str, Floats] = {}
    for name, run in runs.items():
        columns = _order(reference.classes, run.classes, "class", first, name)
        rows = _order(reference.paths, run.paths, "test image", first, name)
        # Labels are indices into each run's own classes: compare them by name.
        own = [run.classes[run.target[r]] for r in rows]
        true = [reference.classes[k] for k in reference.target]
        wrong = [i for i, (a, b) in enumerate(zip(own, true, strict=True)) if a != b]
        if wrong:
            i = wrong[0]
            raise ValueError(
                f"runs must agree on the true classes, but {reference.paths[i]!r} is {true[i]!r} in {first} "
                f"and {own[i]!r} in {name} ({counted(len(wrong), 'such image')})"
            )
        logits[name] = run.logits[np.ix_(rows, columns)]
    return logits, reference.target


def _order(wanted: tuple[str, ...], given: tuple[str, ...], noun: str, first: str, name: str) -> list[int]:
    """The position in `given` of each of `wanted`; both must hold the same items, each once."""
    place = {item: i for i, item in enumerate(given)}
    if len(place) != len(given):
        twice = next(item for i, item in enumerate(given) if place[item] != i)
        raise ValueError(
            f"{name} lists the {noun} {twice!r} more than once; runs can be compared only if it lists each once"
        )
    missing = [item for item in wanted if item not in place]
    if missing:
        lacks = f"{name} lacks {counted(len(missing), noun)} of {first}, first {missing[0]!r}"
        raise ValueError(f"runs must be of the same data, but {lacks}")
    if len(given) > len(wanted):
        known = set(wanted)
        extra = next(item for item in given if item not in known)
        raise ValueError(f"runs must be of the same data, but {name} has the {noun} {extra!r}, which {first} lacks")
    return [place[item] for item in wanted]
