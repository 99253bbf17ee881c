"""The section `mixture`: the components of compound batch norm, at the end and while training."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from longtail.evaluation.mixture import MixtureLayer
from longtail.evaluation.mixture_record import MixtureRecord, mixture_records
from longtail.evaluation.report.base import SECTIONS, Section
from longtail.evaluation.report.class_profile import by_size
from longtail.evaluation.report.confusion_chart import cells
from longtail.evaluation.report.layer_histories import layer_histories
from longtail.evaluation.report.render_template import render_template
from longtail.evaluation.report.svg import box, path, svg
from longtail.evaluation.result import Evaluation

STRIPS = 24


@SECTIONS.register("mixture")
def mixture_section(records: Sequence[Mapping[str, Any]], evaluation: Evaluation) -> Section | None:
    """The layers of the last record, and their course over all records; None without mixtures."""
    history = mixture_records(records)
    if not history:
        return None
    layers = history[-1].layers
    groups: dict[str, list[int]] = {
        group: [k for k, c in enumerate(evaluation.classes) if c.group == group] for group in evaluation.groups
    }
    order = by_size(evaluation.classes)
    histories, recorded = layer_histories(history, groups)
    html = render_template(
        "mixture.html",
        layers=layers,
        groups=list(groups),
        collapse=collapse_sentence(layers, history),
        collapses=[collapse_remark(layer, history) for layer in layers],
        histories=histories,
        recorded=recorded,
        weights=[weights_bar(layer) for layer in layers],
        usage=[usage_strip(layer, order) for layer in layers],
    )
    data = {
        "layers": [_layer_json(layer, groups) for layer in layers],
        "history": [_record_json(record, groups) for record in history],
    }
    return Section(html, data)


def collapse_remark(layer: MixtureLayer, history: Sequence[MixtureRecord]) -> str:
    """Whether the layer has collapsed, or had, and after which epoch that was first seen; empty if never."""
    seen = _collapses(layer.name, history)
    if layer.collapse is not None:
        return f"{layer.collapse}, first seen after epoch {seen[0]}" if seen else layer.collapse
    if not seen:
        return ""
    until = f", until epoch {seen[-1]} at least" if len(seen) > 1 else ""
    return f"had collapsed after epoch {seen[0]}{until}"


def collapse_sentence(layers: Sequence[MixtureLayer], history: Sequence[MixtureRecord] = ()) -> str:
    """One sentence about all layers at the end, and one about those that had collapsed and recovered."""
    collapsed = {layer.name for layer in layers if layer.collapse is not None}
    times = [(epoch, layer.name) for layer in layers for epoch in _collapses(layer.name, history)]
    first = min(((epoch, name) for epoch, name in times if name in collapsed), default=None, key=lambda time: time[0])
    when = "" if first is None else f", first {first[1]} after epoch {first[0]}"
    if not collapsed:
        text = "No layer has collapsed."
    elif history and all(layer.farthest == 0 for layer in [*layers, *(each for r in history for each in r.layers)]):
        text = (
            "The components of every layer are the same and never separated: a collapsed mixture, which does no more "
            "than plain batch normalization."
        )
    elif len(collapsed) == len(layers):
        text = f"Every layer has collapsed{when}: the mixture does no more than plain batch normalization."
    else:
        text = f"{len(collapsed)} of {len(layers)} layers {'has' if len(collapsed) == 1 else 'have'} collapsed{when}."
    recovered = {name for _, name in times} - collapsed
    if recovered:
        text += f" {len(recovered)} had collapsed during training and recovered."
    return text


def usage_strip(layer: MixtureLayer, order: Sequence[int]) -> Markup | None:
    """Which classes use which component of a layer: one row per component, columns from frequent to rare classes."""
    rows = [layer.usage[k] for k in order if k < len(layer.usage)]
    bins = [[row for row in part if row is not None] for part in _split(rows, min(STRIPS, len(rows)))]
    if not any(bins):
        return None
    shares = np.array([np.mean(part, axis=0) if part else np.zeros(len(layer.priors)) for part in bins]).T
    width, height = 192 / len(bins), 9.0
    label = f"Use of the {len(layer.priors)} components of {layer.name}, from frequent to rare classes"
    return svg(cells(shares, width, height), width=192, height=height * len(layer.priors), label=label, kind="strip")


def weights_bar(layer: MixtureLayer) -> Markup:
    """The priors of a layer's components side by side."""
    parts, x = [], 0.0
    for j, prior in enumerate(layer.priors):
        parts.append(path(box(x, 0, 120 * prior, 14), f"part part{j % 4}", title=f"component {j + 1}: {prior:.1%}"))
        x += 120 * prior
    label = f"Weights of {layer.name}: " + ", ".join(f"{prior:.1%}" for prior in layer.priors)
    return svg(parts, width=120, height=14, label=label, kind="strip")


def _split(rows: list[tuple[float, ...] | None], parts: int) -> list[list[tuple[float, ...] | None]]:
    edges = [round(i * len(rows) / parts) for i in range(parts + 1)] if parts else [0]
    return [rows[a:b] for a, b in pairwise(edges)]


def _collapses(name: str, history: Sequence[MixtureRecord]) -> list[int]:
    """The epochs after which the layer was seen collapsed; components that have yet to separate do not count."""
    records = [(record.epoch, layer) for record in history if (layer := record.layer(name)) is not None]
    separated = next((i for i, (_, layer) in enumerate(records) if layer.farthest), 0)
    return [epoch for epoch, layer in records[separated:] if layer.collapse is not None]


def _layer_json(layer: MixtureLayer, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """A layer with its use by group: by class, 31 layers and 1,000 classes would be half of the page."""
    uses = {group: layer.use_by(classes) for group, classes in groups.items()}
    return {
        "name": layer.name,
        "priors": layer.priors,
        "distances": layer.distances,
        "effective_components": layer.effective_components,
        "collapse": layer.collapse,
        "usage": {group: use for group, use in uses.items() if use is not None},
    }


def _record_json(record: MixtureRecord, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """A record with three decimals and without pairs of components: there are twenty of them."""
    layers = []
    for layer in record.layers:
        uses = {group: layer.use_by(classes) for group, classes in groups.items()}
        layers.append(
            {
                "name": layer.name,
                "priors": [round(p, 3) for p in layer.priors],
                "effective_components": round(layer.effective_components, 3),
                "distance": None if layer.mean_distance is None else float(f"{layer.mean_distance:.3g}"),
                "usage": {group: [round(u, 3) for u in use] for group, use in uses.items() if use is not None},
            }
        )
    return {"epoch": record.epoch, "layers": layers}
