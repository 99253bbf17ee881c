"""Render the page: one HTML file that needs no network and no JavaScript, and trusts no class name.

Names come from other people's folders and CSV files. Jinja2 escapes them all. The content security policy of the page
allows one script and one style sheet, by their hashes, and images from `data:` addresses, so that even a mistake in
escaping could not run or fetch anything.
"""

import base64
import hashlib
from typing import Any

from markupsafe import Markup

from longtail.class_counts import ClassCounts
from longtail.evaluation.bootstrap import Estimate
from longtail.evaluation.comparison import Comparison
from longtail.evaluation.promise import Promise, verdict
from longtail.evaluation.report import confusion_chart, curves
from longtail.evaluation.report.base import render_sections
from longtail.evaluation.report.class_profile import accuracy_by_size, by_size, class_profile
from longtail.evaluation.report.difference_chart import class_changes, difference_chart
from longtail.evaluation.report.headline import headline, remarks, worst_classes
from longtail.evaluation.report.render_template import read_template, render_template
from longtail.evaluation.report.report import Report
from longtail.evaluation.report.report_json import comparison_json, report_json
from longtail.evaluation.report.svg import number, percent
from longtail.evaluation.result import ClassResult, Evaluation

WIDE, NARROW = 880.0, 358.0
TOP_CONFUSIONS = 20


def render_report(report: Report) -> str:
    """The page of one run, as the text of an HTML file."""
    found = report.evaluation
    order = by_size(found.classes)
    sections = render_sections(report.records, found)
    return render_page(
        "report.html",
        data=report_json(report, {name: section.data for name, section in sections.items()}),
        report=report,
        found=found,
        order=order,
        imbalance=ClassCounts(c.train for c in found.classes).imbalance_factor,
        headline=headline(found),
        remarks=remarks(found, report.training),
        worst=worst_classes(found),
        promise_rows=_promise_rows(report),
        promise_cell=_promise_cell,
        verdict=verdict,
        charts={
            "profile": [class_profile(found, width=w) for w in (WIDE, NARROW)],
            "by_size": [accuracy_by_size(found, width=w) for w in (WIDE, NARROW)],
        },
        confusion=confusion_chart.confusion_chart(found) if len(order) <= confusion_chart.FULL_UP_TO else None,
        blocks=confusion_chart.block_chart(found) if len(order) > confusion_chart.FULL_UP_TO else None,
        confusions=_top_confusions(found) if len(order) > confusion_chart.FULL_UP_TO else [],
        reliability=_reliability(found),
        sweeps=[curves.sweep_chart(p.choice) if len(p.choice.tried) > 1 else None for p in report.posthoc],
        shift=curves.shift_chart(report.shifted) if report.shifted else None,
        sections=[section.html for section in sections.values()],
        curves=curves.training_curves(report.training),
    )


def render_comparison(comparison: Comparison, *, title: str = "Comparison of runs") -> str:
    """The page of two or more runs on the same test images, as the text of an HTML file."""
    first = comparison.evaluations[comparison.baseline]
    others = [name for name in comparison.evaluations if name != comparison.baseline]
    changes = {name: [d for d in comparison.class_differences if d.run == name] for name in others}
    return render_page(
        "comparison.html",
        data=comparison_json(comparison),
        title=title,
        comparison=comparison,
        first=first,
        others=others,
        setting_rows=comparison.setting_differences(),
        names=[c.name for c in first.classes],
        shown={name: comparison.shown(name) for name in others},
        differences={name: [d for d in comparison.differences if d.run == name] for name in others},
        charts={name: [difference_chart(comparison, name, width=w) for w in (WIDE, NARROW)] for name in others},
        changes=changes,
        change_charts={
            name: [class_changes(first, changes[name], name, width=w) for w in (WIDE, NARROW)] for name in others
        },
    )


def render_page(template: str, *, data: str, **parts: Any) -> str:
    """The text of an HTML file from a template that extends `base.html`; `data` is JSON for scripts."""
    style, script = read_template("style.css"), read_template("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return render_template(
        template,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        # Inside a script element only "</script" and "<!--" have a meaning, and both begin with "<".
        data=Markup(data.replace("<", "\\u003c")),
        interval=_interval,
        recall_bar=_recall_bar,
        estimate_bar=_estimate_bar,
        **parts,
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"{percent(estimate.low)} to {percent(estimate.high)}"


def _promise_rows(report: Report) -> list[tuple[str, str]]:
    """The name and the key of each number of a promise that the page shows."""
    if report.adjustment is None:
        return []
    decision = report.adjustment.decision
    accuracy = "Balanced accuracy, %" if decision.prior is None else "Accuracy under the prior, %"
    rows = [(accuracy, "accuracy"), ("Calibration error, %", "ece"), ("Negative log-likelihood", "nll")]
    if decision.abstain_below:
        rows += [("Images with a prediction, %", "answered"), ("Right of these, %", "precision")]
    return rows


def _promise_cell(promise: Promise, key: str) -> Markup:
    estimate: Estimate | None = getattr(promise, key)
    if estimate is None:
        return Markup("–")
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (f"{v:.3f}" if key == "nll" and v is not None else percent(v) for v in ends)
    return Markup("{}<small>{}</small>").format(value, "no interval" if estimate.low is None else f"{low} to {high}")


def _recall_bar(c: ClassResult) -> Markup:
    """The recall as a bar and its interval as a line, beside the number in a cell of the table."""
    if c.recall is None or c.low is None or c.high is None:
        return Markup("")
    value, low, high = (number(100 * v) for v in (c.recall, c.low, c.high))
    return Markup(
        f'<svg class="tiny {c.group}" viewBox="0 0 100 10" aria-hidden="true">'
        f'<path class="bar" d="M0 1H{value}v8H0z"/><path class="span" d="M{low} 5H{high}"/></svg>'
    )


def _estimate_bar(estimate: Estimate, kind: str) -> Markup:
    low, high = (estimate.value if v is None else v for v in (estimate.low, estimate.high))
    return Markup(
        f'<svg class="track {kind}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="rail" d="M0 4H100"/>'
        f'<path class="span" d="M{number(100 * low)} 4H{number(100 * high)}"/>'
        f'<path class="point" d="M{number(100 * estimate.value)} 0V8"/></svg>'
    )


def _reliability(found: Evaluation) -> list[dict[str, Any]]:
    parts = [
        {
            "name": "All images",
            "images": found.images,
            "ece": found.ece,
            "classwise": found.classwise_ece,
            "chart": curves.reliability_chart(found.reliability, name="all images", kind="accent"),
        }
    ]
    for name, group in found.groups.items():
        if group.ece is not None:
            chart = curves.reliability_chart(group.reliability, name=f"{name}-shot classes", kind=name)
            parts.append(
                {
                    "name": f"{name.capitalize()}-shot",
                    "images": group.images,
                    "ece": group.ece,
                    "classwise": group.classwise_ece,
                    "chart": chart,
                }
            )
    return parts


def _top_confusions(found: Evaluation) -> list[tuple[ClassResult, ClassResult, int]]:
    wrong = sorted((c for c in found.confusions if c[0] != c[1]), key=lambda c: (-c[2], c[0], c[1]))
    return [(found.classes[t], found.classes[p], n) for t, p, n in wrong[:TOP_CONFUSIONS]]
