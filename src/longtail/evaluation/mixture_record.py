"""How the mixtures of a model change while it is trained, and when one collapsed.

A record holds every layer as it was after an epoch. There are few of them, at most 21 a run: a mixture changes over
epochs and not over steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.evaluation.mixture import MixtureLayer

# A per mille of a class's points: the files would be twice as large with all digits, and say no more.
_DECIMALS = 3


@dataclass(frozen=True)
class MixtureRecord:
    """The layers after `epoch` epochs."""

    epoch: int
    layers: tuple[MixtureLayer, ...]

    def layer(self, name: str) -> MixtureLayer | None:
        """The layer of that name, if there is one."""
        return next((layer for layer in self.layers if layer.name == name), None)


def collapse_remark(layer: MixtureLayer, history: Sequence[MixtureRecord]) -> str:
    """Whether the layer has collapsed, or had, and after which epoch that was first seen; empty if never."""
    seen = _collapses(layer.name, history)
    if layer.collapse is not None:
        return f"{layer.collapse}, first seen after epoch {seen[0]}" if seen else layer.collapse
    if not seen:
        return ""
    return f"had collapsed after epoch {seen[0]}" + (f", last seen so after epoch {seen[-1]}" if len(seen) > 1 else "")


def collapse_sentence(layers: Sequence[MixtureLayer], history: Sequence[MixtureRecord] = ()) -> str:
    """One sentence over all layers at the end, and one over those that had collapsed and did not stay so."""
    collapsed = {layer.name for layer in layers if layer.collapse is not None}
    times = [(epoch, layer.name) for layer in layers for epoch in _collapses(layer.name, history)]
    first = min(((epoch, name) for epoch, name in times if name in collapsed), default=None, key=lambda time: time[0])
    when = "" if first is None else f", first {first[1]} after epoch {first[0]}"
    if not collapsed:
        text = "No layer has collapsed."
    elif history and all(layer.farthest == 0 for layer in [*layers, *(each for r in history for each in r.layers)]):
        text = (
            "The components of every layer are the same and never parted: a collapsed mixture, which does no more than "
            "plain batch normalization."
        )
    elif len(collapsed) == len(layers):
        text = f"Every layer has collapsed{when}: the mixture does no more than plain batch normalization."
    else:
        text = f"{len(collapsed)} of {len(layers)} layers have collapsed{when}."
    passing = {name for _, name in times} - collapsed
    if passing:
        text += f" {len(passing)} {'was' if len(passing) == 1 else 'were'} so during training and did not stay so."
    return text


def _collapses(name: str, history: Sequence[MixtureRecord]) -> list[int]:
    """The epochs after which the layer was seen collapsed; before components part for the first time they are not."""
    records = [(record.epoch, layer) for record in history if (layer := record.layer(name)) is not None]
    parted = next((i for i, (_, layer) in enumerate(records) if layer.farthest), 0)
    return [epoch for epoch, layer in records[parted:] if layer.collapse is not None]


def pack_record(record: MixtureRecord) -> dict[str, Any]:
    """Plain values for a file: rounded, and without the classes that were not seen."""
    seen = sorted({k for layer in record.layers for k, row in enumerate(layer.usage) if row is not None})
    return {
        "epoch": record.epoch,
        "num_classes": max((len(layer.usage) for layer in record.layers), default=0),
        "classes": seen,
        "layers": [
            {
                "name": layer.name,
                "priors": [float(f"{p:.6g}") for p in layer.priors],
                "distances": [[float(f"{d:.4g}") for d in row] for row in layer.distances],
                "usage": [[round(u, _DECIMALS) for u in layer.usage[k] or ()] for k in seen],
            }
            for layer in record.layers
        ],
    }


def unpack_record(content: Mapping[str, Any]) -> MixtureRecord:
    """What `pack_record` packed."""
    layers = []
    for layer in content["layers"]:
        usage: list[tuple[float, ...] | None] = [None] * content["num_classes"]
        for k, row in zip(content["classes"], layer["usage"], strict=True):
            usage[k] = tuple(row)
        distances = tuple(tuple(row) for row in layer["distances"])
        layers.append(MixtureLayer(layer["name"], tuple(layer["priors"]), distances, tuple(usage)))
    return MixtureRecord(content["epoch"], tuple(layers))
