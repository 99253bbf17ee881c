"""How much of the class prior of the training images is in the logits of a model, by what it was trained with.

    p(y | x) ∝ exp(z_y)  under priors ∝ π^s

Plain cross-entropy on images as they come has s = 1. A loss that adds τ log π to the logits leaves s = 1 − τ: balanced
softmax, logit adjustment, the heads on frozen features.
"""

from collections.abc import Mapping
from typing import Any, Literal

# Heads whose `strength` is τ.
_ADJUSTED_HEADS = frozenset({"linear", "cosine"})


def prior_strength(method: Mapping[str, Any], head: Mapping[str, Any] | None = None) -> float | None:
    """s, by the resolved settings of the method, or of the head that replaced its classifier; None if unknown."""
    if head is not None:
        if head.get("name") not in _ADJUSTED_HEADS:
            return None
        loss = head.get("loss")
        strength = float(head.get("strength", 1.0))
        return 1 - strength if loss is None else _of_loss(loss, head.get("loss_settings") or {})
    if method.get("sampler", "instance") != "instance":
        return None
    if method.get("name") == "fine_tune":
        return 1 - float(method.get("strength", 1.0))
    if method.get("name") == "lade":
        return 0.0
    if "sampler" not in method:
        return None
    if method.get("reweight_from") is not None or method.get("mixing") not in (None, "mixup", "cutmix"):
        return None  # labels count otherwise than they come
    return _of_loss(method.get("loss", ""), method.get("loss_settings") or {})


def model_prior(method: Mapping[str, Any], head: Mapping[str, Any] | None = None) -> Literal["train", "uniform"] | None:
    """The class prior that the logits answer for: all of that of the training, or none of it; else None."""
    strength = prior_strength(method, head)
    return {1.0: "train", 0.0: "uniform"}.get(strength) if strength is not None else None  # type: ignore[return-value]  # of a dict


def _of_loss(loss: str, settings: Mapping[str, Any]) -> float | None:
    strength = float(settings.get("strength", 1.0))
    return {"cross_entropy": 1.0, "balanced_softmax": 1 - strength, "logit_adjustment": 1 - strength}.get(loss)
