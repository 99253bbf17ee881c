"""Sections of the page that show what a method recorded while it trained.

A record is `{"epoch": E, NAME: plain values, ...}`: what `Method.diagnose` gave after E epochs. The function that is
registered in `SECTIONS` as NAME renders these values over all records; a name without a function is not shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from longtail._registry import Registry
from longtail.evaluation.result import Evaluation


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Args:
        html: the whole `<section>` element.
        data: the same as plain values, for the JSON inside the page.
    """

    html: Markup
    data: Mapping[str, Any]


# From all records, in order, and the numbers of the run; None where there is nothing to show.
SECTIONS = Registry[Callable[[Sequence[Mapping[str, Any]], Evaluation], Section | None]]("sections")


def render_sections(records: Sequence[Mapping[str, Any]], evaluation: Evaluation) -> dict[str, Section]:
    """The sections of all names that occur in the records and that can be shown."""
    names = dict.fromkeys(name for record in records for name in record if name != "epoch")
    sections = {name: SECTIONS[name](records, evaluation) for name in names if name in SECTIONS}
    return {name: section for name, section in sections.items() if section is not None}
