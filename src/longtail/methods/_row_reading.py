"""The reading of the paper that a row of its ablation trains with, and in what it departs from the paper."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from torch import nn

from longtail.methods._norms import has_trained_norms
from longtail.nn import READINGS, Reading

# The paths that a row trains.
ROW_PATHS = {
    "baseline": (),
    "sbn": ("split",),
    "cbn": ("compound",),
    "cbn_sbn": ("compound", "split"),
    "cbn_sbn_dpl": ("compound", "split"),
}
Start = Literal["auto", "equal", "random"]

# Fields that mean nothing without a split path, and with one component: a departure is what makes a difference.
_OF_THE_SPLIT_PATH = ("group_scheme", "update_on_split")
_OF_A_MIXTURE = ("group_scheme", "component_init", "detach_responsibilities", "scale_affine")


def row_reading(
    model: nn.Module, name: str, row: str, *, momentum: float | None, start: Start, changes: Mapping[str, Any]
) -> Reading:
    """The reading of that name with its changes, and with what the row and the model ask for.

    Args:
        model: before its batch norms are converted; on trained ones components start equal.
        name: in `READINGS`.
        row: of the ablation.
        momentum: of the layers; None for the reading's.
        start: see `CompoundBN`.
        changes: fields of `Reading`.
    """
    changes = _with_start(model, start, changes)
    if name not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {name!r}")
    known = [field.name for field in dataclasses.fields(Reading) if field.name != "momentum"]
    unknown = [key for key in changes if key not in known]
    if unknown:
        hint = " (give it as momentum itself)" if unknown[0] == "momentum" else ""
        raise ValueError(f"reading_settings must have keys among {', '.join(known)}, got {unknown[0]!r}{hint}")
    if row == "sbn" and changes.get("update_on_split") is False:
        raise ValueError(
            "reading_settings must not set update_on_split to false in the row 'sbn': "
            "no pass would leave statistics for inference"
        )
    asked: dict[str, Any] = {"update_on_split": True} if row == "sbn" else {}
    if row == "cbn":
        asked["component_init"] = "random"
    if momentum is not None:
        asked["momentum"] = momentum
    return dataclasses.replace(READINGS[name], **{**asked, **changes})


def row_departures(
    settled: Reading, row: str, components: int, split_loss_weight: float | None, layers: list[str] | None
) -> tuple[str, ...]:
    """What differs from both of the paper's readings and makes a difference in this row."""
    chosen = dataclasses.asdict(settled) | {"layers": layers, "split_loss_weight": split_loss_weight}
    papers: dict[str, tuple[Any, ...]] = {
        name: (value,) for name, value in dataclasses.asdict(READINGS["appendix"]).items()
    }
    papers["statistics"] = ("running", "updated")  # Algorithm 2 and the text
    papers["momentum"] = (0.1, 0.9)  # λ = 0.1, as torch's momentum and literally
    if row == "cbn":
        papers["component_init"] = ("random",)
    weight = None if split_loss_weight is None else float(row == "cbn_sbn")
    papers |= {"layers": (None,), "split_loss_weight": (weight,)}
    void = (() if "split" in ROW_PATHS[row] else _OF_THE_SPLIT_PATH) + (() if components > 1 else _OF_A_MIXTURE)
    return tuple(
        f"{name} is {_said(name, value)}, the paper's {' or '.join(_said(name, each) for each in papers[name])}"
        for name, value in chosen.items()
        if value not in papers[name] and name not in void
    )


def _said(name: str, value: object) -> str:
    if value is None:
        return {"momentum": "each batch norm's own", "layers": "all"}.get(name, "none")
    return str(value).lower()


def _with_start(model: nn.Module, start: Start, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of the reading, with the components' start among them where it is known."""
    if start not in get_args(Start):
        raise ValueError(f"start must be one of {', '.join(get_args(Start))}, got {start!r}")
    given = changes.get("component_init", start)
    if start not in ("auto", given):
        raise ValueError(f"start must be that of reading_settings, {given!r}, got {start!r} (give one of the two)")
    if given == "auto" and has_trained_norms(model):
        given = "equal"
    return {**changes} if given == "auto" else {**changes, "component_init": given}
