"""The outcome as text: a table for the terminal, `reproduction.md`, and `reproduction.json` with all details."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtail import __version__
from longtail._files import write_text
from longtail.reproduction.estimate import settings_in_words
from longtail.reproduction.plan import Plan, compound_settings
from longtail.reproduction.run_outcome import EntryOutcome, Summary

FORMAT = 1
NAMES = {"top1": "all", "many": "many", "medium": "medium", "few": "few"}
HEADER = ("row", "data", "classes", "paper", "ours", "difference", "seeds", "remark")


@dataclass(frozen=True)
class Page:
    """The outcome for readers: a title, how it was made, the lines of the table, and its footnotes."""

    title: str
    made: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...]


def make_page(plan: Plan, outcomes: Sequence[EntryOutcome]) -> Page:
    """Lay out the outcome, one line per number."""
    footnotes = list(dict.fromkeys(note for found in outcomes for note in found.entry.notes))
    lines = []
    for found in outcomes:
        marks = "".join(f"[{footnotes.index(note) + 1}]" for note in found.entry.notes)
        for number, (metric, summary) in enumerate(found.summaries.items()):
            first = number == 0
            seeds = f"{len(summary.values)}/{len(found.runs)}" if found.runs else ""
            remark = " ".join(part for part in (found.remark, marks) if part) if first else ""
            lines.append(
                (
                    found.entry.name if first else "",
                    found.entry.data if first else "",
                    NAMES[metric],
                    _percent(summary.paper, found.entry.decimals),
                    _ours(summary),
                    "" if summary.difference is None else f"{summary.difference:+.2f}",
                    seeds,
                    remark,
                )
            )
    title = f"{plan.table.name}: {plan.table.title} ({', '.join(plan.table.sources)} of the paper)"
    return Page(title, tuple(how_it_was_made(plan)), tuple(lines), tuple(footnotes))


def how_it_was_made(plan: Plan) -> list[str]:
    """The budget, the settings, and what they mean for the comparison."""
    configs = [run.config for run in plan.runs]
    seeds = f"seed{'s' if len(plan.seeds) > 1 else ''} {', '.join(map(str, plan.seeds))}"
    lines = [f"budget {plan.budget}, {seeds}; accuracy on the test images after the last epoch, in percent"]
    lines += [f"runs: {line}" for line in settings_in_words(configs)]
    lines += _readings(plan)
    if plan.budget == "quick":
        lines.append(
            "the quick budget does not reproduce the paper's 400 epochs: it shows that the rows run, "
            "not what accuracy they reach"
        )
    return [*lines, *plan.remarks]


def _readings(plan: Plan) -> list[str]:
    """The readings that compound_bn was run with; the baseline, plain batch norm, has none."""
    given = [settings for run in plan.runs if (settings := compound_settings(run.config)) is not None]
    found = {each.get("reading", "measured") for each in given if each.get("row") != "baseline"}
    sentences = {
        "measured": (
            "compound_bn uses the reading `measured`, which departs from the paper (docs/methods.md and the report of "
            "each run list how); --reading appendix or --reading text follows the paper"
        ),
        "appendix": "compound_bn uses the reading `appendix`, Algorithm 2 in the paper's appendix",
        "text": "compound_bn uses the reading `text`, the order of steps in the paper's main text",
    }
    return [sentence for reading, sentence in sentences.items() if reading in found]


def as_markdown(page: Page) -> str:
    """The page as Markdown."""
    rows = [HEADER, ["---", "---", "---", "---:", "---:", "---:", "---:", "---"], *page.lines]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    notes = [f"[{number}] {note}" for number, note in enumerate(page.footnotes, start=1)]
    return "\n".join([f"# {page.title}", "", *_list(page.made), "", *table, "", *_list(notes)]).rstrip() + "\n"


def as_json(plan: Plan, outcomes: Sequence[EntryOutcome]) -> dict[str, Any]:
    """All details, for programs."""
    return {
        "format": FORMAT,
        "longtail": __version__,
        "table": plan.table.name,
        "sources": plan.table.sources,
        "budget": plan.budget,
        "seeds": list(plan.seeds),
        "selection": "last epoch, test images, percent",
        "remarks": how_it_was_made(plan),
        "entries": [_entry_as_json(found) for found in outcomes],
    }


def write_outcome(plan: Plan, outcomes: Sequence[EntryOutcome]) -> None:
    """Write reproduction.json and reproduction.md into the plan's folder."""
    plan.out.mkdir(parents=True, exist_ok=True)
    write_text(plan.out / "reproduction.json", json.dumps(as_json(plan, outcomes), indent=1) + "\n")
    write_text(plan.out / "reproduction.md", as_markdown(make_page(plan, outcomes)))


def _entry_as_json(found: EntryOutcome) -> dict[str, Any]:
    entry = found.entry
    return {
        "row": entry.row,
        "name": entry.name,
        "data": entry.data,
        "source": entry.source,
        "notes": list(entry.notes),
        "paper": dict(entry.paper),
        "ours": {metric: _summary_as_json(summary) for metric, summary in found.summaries.items()},
        "runs": [
            {
                "seed": outcome.run.seed,
                "folder": str(outcome.run.folder),
                "state": outcome.state,
                "exit_code": outcome.exit_code,
                "message": outcome.message,
                "settings": outcome.run.config.as_dict(),
                "environment": _environment(outcome.run.folder / "env.json"),
            }
            for outcome in found.runs
        ],
    }


def _summary_as_json(summary: Summary) -> dict[str, Any]:
    return {
        "mean": summary.mean,
        "standard_deviation": summary.deviation,
        "difference": summary.difference,
        "values": {str(seed): value for seed, value in summary.values.items()},
    }


def _environment(file: Path) -> Any:
    """The env.json of a run; None where it cannot be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, json.JSONDecodeError):
        return None


def _ours(summary: Summary) -> str:
    if summary.deviation is None:
        return _percent(summary.mean)
    return f"{_percent(summary.mean)} ± {summary.deviation:.2f}"


def _percent(value: float | None, decimals: int = 2) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"


def _list(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]
