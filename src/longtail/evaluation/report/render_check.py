"""The page of `longtail check`: what is in a data set, before anything is trained; it looks like the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtail._errors import counted
from longtail.class_counts import ClassCounts, Group
from longtail.evaluation.report.class_profile import class_sizes
from longtail.evaluation.report.render import NARROW, WIDE, render_page


@dataclass(frozen=True)
class SizedClass:
    """A class and its training images."""

    name: str
    group: Group
    train: int


def render_check(
    title: str,
    classes: Sequence[str],
    counts: ClassCounts,
    *,
    images: Mapping[str, int],
    sizes: Sequence[int],
    problems: Sequence[Any],
    notes: Sequence[str],
    advice: Sequence[str],
    command: str,
    data: str,
) -> str:
    """The page as the text of an HTML file.

    Args:
        title: the data as the user named it.
        classes: their names.
        counts: training images of each.
        images: of each split.
        sizes: smallest, median and largest shorter side; empty if they are not known.
        problems: each with a `severity` and a `message`.
        notes: how the layout was understood.
        advice: what to try.
        command: that trains on the data.
        data: all of it as JSON, for scripts.
    """
    members = counts.groups()
    group: dict[int, Group] = {k: name for name, own in members.items() for k in own}
    sized = [SizedClass(name, group[k], counts[k]) for k, name in enumerate(classes)]
    ranked = sorted(sized, key=lambda c: -c.train)
    warnings = sum(problem.severity == "warning" for problem in problems)
    return render_page(
        "check.html",
        data=data,
        title=title,
        verdict=f"{counted(warnings, 'problem')} can spoil a result." if warnings else "Ready to train.",
        images={split: number for split, number in images.items() if number},
        classes=ranked,
        imbalance=counts.imbalance_factor,
        effective=counts.effective_classes,
        largest=max(counts),
        smallest=min(counts),
        groups={name: len(own) for name, own in members.items()},
        sizes=sizes,
        problems=problems,
        notes=notes,
        advice=[line[:1].upper() + line[1:] for line in advice],
        command=command,
        charts=[class_sizes(ranked, width=width) for width in (WIDE, NARROW)],
    )
