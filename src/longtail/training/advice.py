"""What to do next with a finished run, in a few sentences: train for longer, or collect images of which classes."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from longtail._errors import counted
from longtail.evaluation import Evaluation
from longtail.evaluation.report.svg import shorten

Rows = Sequence[Mapping[str, float | None]]

# Below this share of right training images at the end, a training was too short.
_LEARNT = 0.5
# A training still improves if the last third of its scores is higher than the third before by so much.
_RISES = 0.01
# A class with fewer images is named if less than half of its test images are recognised; at most so many are.
_FEW, _NAMED = 20, 3


def advice(path: Path, found: Evaluation, training: Rows, *, epochs: int) -> list[str]:
    """One sentence for each thing to do; none if all is well.

    Args:
        path: the run's folder.
        found: its numbers.
        training: the lines of metrics.csv.
        epochs: that were planned.
    """
    return [*_longer(path, training, epochs), *_collect(found)]


def _longer(path: Path, training: Rows, epochs: int) -> list[str]:
    if not training:
        return []
    done = int(training[-1].get("epoch") or 0)
    more = f"longtail train --resume {shlex.quote(str(path))} --epochs {2 * max(epochs, done)}"
    # With strong augmentation or margins, training images are harder than others: the better of both counts.
    shares = [training[-1].get(name) for name in ("train/accuracy", "val/accuracy")]
    learnt = max((share for share in shares if share is not None), default=1.0)
    if learnt < _LEARNT:
        return [f"training accuracy is only {learnt:.0%}: train longer with {more}"]
    scores = [score for row in training if (score := row.get("val/balanced")) is not None]
    third = len(scores) // 3
    if third and sum(scores[-third:]) / third - sum(scores[-2 * third : -third]) / third > _RISES:
        return [f"still improving on validation at the end: {more}"]
    return []


def _collect(found: Evaluation) -> list[str]:
    poor = [c for c in found.classes if c.train < _FEW and c.recall is not None and c.recall < 0.5]
    poor.sort(key=lambda c: (c.train, c.recall))
    named = [f"{shorten(c.name, 60)} has {counted(c.train, 'image')}" for c in poor[:_NAMED]]
    if not named:
        return []
    others = len(poor) - _NAMED
    rest = f", and {counted(others, 'more class')} {'has' if others == 1 else 'have'} few" if others > 0 else ""
    return [f"{', '.join(named)}{rest}: collect more"]
