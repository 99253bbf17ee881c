"""The sentences above the numbers, which say what they mean."""

from collections.abc import Mapping, Sequence

from longtail.evaluation.report.svg import shorten
from longtail.evaluation.result import Evaluation

WIDE_GAP = 0.2
POORLY_CALIBRATED = 0.05
# Of the training images, right at the end of a training that was long enough.
LEARNT = 0.5
_NAMED = 3


def headline(found: Evaluation) -> str:
    """One sentence: the accuracy on rare classes against that on frequent ones."""
    measured = {name: group.accuracy for name, group in found.groups.items() if group.accuracy is not None}
    gap = found.head_tail_gap
    if gap is None:
        (name, accuracy), *_ = measured.items()
        return f"All measured classes are {name}-shot: {100 * accuracy.value:.0f}\u00a0% accuracy."
    (first, head), *_, (last, tail) = measured.items()
    shares = [f"{100 * accuracy.value:.0f}\u00a0%" for accuracy in (head, tail)]
    numbers = f"{shares[0]} on {first}-shot classes, {shares[1]} on {last}-shot ones."
    if gap.low is None or gap.high is None or gap.low <= 0 <= gap.high:
        return f"No gap shown between frequent and rare classes: {numbers}"
    if gap.high < 0:
        return f"Rare classes do better than frequent ones: {numbers}"
    if gap.low > WIDE_GAP:
        return f"Rare classes are left behind: {numbers}"
    return f"Rare classes do worse than frequent ones: {numbers}"


def worst_classes(found: Evaluation) -> str:
    """The class of the lowest recall, or how many share it."""
    worst = found.classes[found.worst_class]
    equal = [c for c in found.classes if c.recall == worst.recall]
    recall = f"{100 * (worst.recall or 0):.1f}\u00a0%"
    if len(equal) == 1:
        return f"Worst class: {shorten(worst.name, 60)}, {recall}."
    names = ", ".join(shorten(c.name, 40) for c in sorted(equal, key=lambda c: -c.train)[:_NAMED])
    more = ", ..." if len(equal) > _NAMED else ""
    return f"Worst: {len(equal):,} classes at {recall} ({names}{more})."


def remarks(found: Evaluation, training: Sequence[Mapping[str, float | None]] = ()) -> list[str]:
    """What else a reader must know before trusting the numbers; `training` has the rows of metrics.csv."""
    said = _too_short(training)
    total = len(found.classes)
    never = sum(c.recall == 0 for c in found.classes)
    if never:
        said.append(f"{never:,} of {found.measured:,} classes {'is' if never == 1 else 'are'} never recognised.")
    unpredicted = sum(c.predicted == 0 for c in found.classes)
    if unpredicted:
        said.append(f"{unpredicted:,} of {total:,} classes {'is' if unpredicted == 1 else 'are'} never predicted.")
    if found.measured < total:
        missing = total - found.measured
        said.append(
            f"Balanced over {found.measured:,} of {total:,} classes: "
            f"{missing:,} {'has' if missing == 1 else 'have'} no test image."
        )
    if found.images < 2:
        said.append("One test image gives no interval.")
    if found.ece.value > POORLY_CALIBRATED:
        said.append(f"The model is {_bias(found)}: its confidence is off by {100 * found.ece.value:.0f} points.")
    return said


def _too_short(training: Sequence[Mapping[str, float | None]]) -> list[str]:
    """That the training images themselves are not learnt yet, which more epochs mend and nothing else does."""
    shares = [value for row in training if (value := row.get("train/accuracy")) is not None]
    if not shares or shares[-1] >= LEARNT:
        return []
    rising = len(shares) > 1 and shares[-1] > shares[-2]
    still = ", and the share was still rising" if rising else ""
    return [
        f"The training may have been too short: {100 * shares[-1]:.0f}\u00a0% of its augmented "
        f"training images were right at its end{still}. Train for more epochs."
    ]


def _bias(found: Evaluation) -> str:
    bins = zip(found.reliability.counts, found.reliability.confidence, strict=True)
    confidence = sum(n * c for n, c in bins if c is not None) / found.images
    return "overconfident" if confidence > found.top1.value else "underconfident"
