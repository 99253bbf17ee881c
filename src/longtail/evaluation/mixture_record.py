"""How the mixtures of a model change while it is trained: one record for each epoch that was looked at.

The plain form of a layer, which files hold and `Method.diagnose` gives in its section `mixture`, has `name`, `priors`,
`distances` and `usage`, as `MixtureLayer` has them. Of thousands of classes few are in a sample of test images: then
`usage` has the rows of `classes` alone, out of `num_classes`.
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


def mixture_records(records: Sequence[Mapping[str, Any]]) -> list[MixtureRecord]:
    """The mixtures in the records of a run, in order; none where the method has no mixtures.

    Args:
        records: `{"epoch": E, "mixture": [plain layers], ...}` each; other sections are not looked at.

    Raises:
        ValueError: a layer lacks something, or its numbers do not fit together.
    """
    try:
        return [
            MixtureRecord(record["epoch"], tuple(unpack_layer(layer) for layer in record["mixture"]))
            for record in records
            if record.get("mixture")
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the section mixture of a record is broken: {error!r}") from error


def pack_layer(layer: MixtureLayer) -> dict[str, Any]:
    """The plain form of a layer: rounded, and without the classes that were not seen."""
    packed: dict[str, Any] = {
        "name": layer.name,
        "priors": [float(f"{p:.6g}") for p in layer.priors],
        "distances": [[float(f"{d:.4g}") for d in row] for row in layer.distances],
        "usage": [[round(u, _DECIMALS) for u in row] for row in layer.usage if row is not None],
    }
    seen = [k for k, row in enumerate(layer.usage) if row is not None]
    if len(seen) < len(layer.usage):
        packed |= {"classes": seen, "num_classes": len(layer.usage)}
    return packed


def unpack_layer(packed: Mapping[str, Any]) -> MixtureLayer:
    """The layer whose plain form this is."""
    rows = [None if row is None else tuple(row) for row in packed["usage"]]
    usage: list[tuple[float, ...] | None] = [None] * packed.get("num_classes", len(rows))
    for k, row in zip(packed.get("classes", range(len(rows))), rows, strict=True):
        usage[k] = row
    distances = tuple(tuple(row) for row in packed["distances"])
    return MixtureLayer(packed["name"], tuple(packed["priors"]), distances, tuple(usage))
