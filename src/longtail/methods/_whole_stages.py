"""Stages of whole epochs."""

import math
from collections.abc import Sequence


def whole_stages(starts: Sequence[float], epochs: int) -> tuple[float, ...]:
    """The progress at which each stage starts, moved to the start of an epoch so that each stage has at least one.

    Args:
        starts: as progress, 0 first, increasing.
        epochs: of the training.

    Example:
        >>> whole_stages((0.0, 2 / 3, 14 / 15), 10)
        (0.0, 0.7, 0.9)
    """
    if epochs < len(starts):
        raise ValueError(
            f"epochs must be at least {len(starts)}, one for each stage, got {epochs} "
            f"(--epochs {len(starts)}, or a method of one stage such as erm)"
        )
    wholes: list[int] = []
    for number, start in enumerate(starts):
        # Resolved before, a start may be a hair too large: 7 / 25 * 25 is above 7.
        wanted = math.ceil(start * epochs - 1e-6)
        earliest, latest = (wholes[-1] + 1 if wholes else 0), epochs - len(starts) + number
        wholes.append(min(max(wanted, earliest), latest))
    return tuple(whole / epochs for whole in wholes)


def check_starts(**starts: float) -> None:
    """Raise unless these are progress values in order, more than 0 and less than 1."""
    last = 0.0
    for name, start in starts.items():
        if not last < start < 1:
            raise ValueError(f"{name} must be more than {last} and less than 1, got {start}")
        last = start
