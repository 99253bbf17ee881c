"""Where a training stands; a checkpoint holds it."""

from dataclasses import dataclass, field

from longtail.training.callback import Row


@dataclass
class Progress:
    """Where the training stands, the sums of the epoch under way, and the results of those before.

    `sums` has `images`, `correct` and, weighted by images, `loss` and each part of it. `records` are the method's
    diagnostics, a line of JSON each.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
