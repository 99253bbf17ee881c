"""The content of a report: an evaluation, and whatever else is known about the run."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longtail.evaluation.decision import Decision
from longtail.evaluation.posthoc import PostHocChoice
from longtail.evaluation.promise import Promise
from longtail.evaluation.result import Evaluation
from longtail.evaluation.shifted import ShiftedAccuracy

_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


@dataclass(frozen=True)
class Thumbnail:
    """A test image that the model got wrong; `image` is a small PNG or JPEG file as bytes."""

    image: bytes
    target: str
    prediction: str
    confidence: float
    path: str = ""

    def __post_init__(self) -> None:
        if not self.image.startswith(tuple(_SIGNATURES)):
            raise ValueError(
                f"image of {self.path or 'a thumbnail'} must be a PNG or JPEG file, got {self.image[:8]!r}"
            )

    @property
    def data_uri(self) -> str:
        """The image as a `data:` address."""
        kind = next(name for signature, name in _SIGNATURES.items() if self.image.startswith(signature))
        return f"data:{kind};base64,{base64.b64encode(self.image).decode('ascii')}"


@dataclass(frozen=True)
class PostHoc:
    """A post-hoc change: how its parameter was chosen on validation images, and its numbers on the test images."""

    choice: PostHocChoice
    evaluation: Evaluation


@dataclass(frozen=True)
class Adjustment:
    """What was stored by `longtail adjust`, with its promise, and what it gives on the test images.

    Args:
        decision: as stored.
        before: the model as trained, on the test images.
        held: the decision, on the test images.
    """

    decision: Decision
    before: Promise
    held: Promise


@dataclass(frozen=True)
class Report:
    """Everything that a page can show; what is empty is left out.

    Args:
        evaluation: the numbers.
        title: the run's name.
        summary: what the run is, in words (method, data set, model), shown under the title.
        selection: the weights that were evaluated, such as "weights of the last epoch".
        posthoc: post-hoc changes.
        adjustment: what was stored by `longtail adjust`, which the numbers include.
        adjust_command: the command that applies the post-hoc changes.
        shifted: accuracy under shifted test sets.
        records: what the method recorded, in order: `{"epoch": E, NAME: plain values, ...}`, of which the page shows
            the names in `longtail.evaluation.report.SECTIONS`. The last record is that of the end.
        training: the rows of metrics.csv, in order.
        worst_errors: the test images with the most confident wrong predictions.
        problems: what the check of the data found, one sentence each.
        departures: how the method differs from its paper, one phrase each.
        config: the resolved configuration as text.
        environment: versions, hardware, commit.
        command: the command that repeats the run.
    """

    evaluation: Evaluation
    title: str
    summary: str = ""
    selection: str = ""
    posthoc: Sequence[PostHoc] = ()
    adjustment: Adjustment | None = None
    adjust_command: str = ""
    shifted: Sequence[ShiftedAccuracy] = ()
    records: Sequence[Mapping[str, Any]] = ()
    training: Sequence[Mapping[str, float | None]] = ()
    worst_errors: Sequence[Thumbnail] = ()
    problems: Sequence[str] = ()
    departures: Sequence[str] = ()
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
