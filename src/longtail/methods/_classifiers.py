"""The last layer of a method's model: linear, or of cosines, as its loss takes them."""

from typing import Literal, cast, get_args

from torch import nn

from longtail.losses import LongTailLoss
from longtail.methods.base import HeadedModel, check_headed
from longtail.nn.cosine_classifier import CosineClassifier

ClassifierKind = Literal["linear", "cosine"]

# Of the cosines, unless the loss has a scale of its own: that of LDAM's authors.
_SCALE = 30.0


def choose_classifier(kind: ClassifierKind | None, loss: LongTailLoss, name: str) -> ClassifierKind:
    """The kind of classifier that was asked for, or that the loss called `name` takes."""
    if kind is not None and kind not in get_args(ClassifierKind):
        raise ValueError(f"classifier must be 'linear' or 'cosine', got {kind!r}")
    if kind == "linear" and _scales_up(loss):
        raise ValueError(
            f"classifier must be 'cosine' for loss {name!r}, got 'linear': its margins and its scale are for cosines, "
            "and on other logits it hardly learns (leave classifier out, or set loss_settings.scale to 1)"
        )
    return kind or ("linear" if loss.cosine_scale() is None else "cosine")


def check_logits(loss: LongTailLoss, name: str) -> None:
    """Refuse a loss called `name` that takes cosines, in a method that leaves the classifier as it is."""
    if _scales_up(loss):
        raise ValueError(
            f"loss must be one for any logits here, got {name!r}, whose margins and scale are for cosines "
            "(take 'balanced_softmax', set loss_settings.scale to 1, or train by erm, which makes a cosine classifier)"
        )


def _scales_up(loss: LongTailLoss) -> bool:
    return loss.cosine_scale() not in (None, 1)


def make_cosine(model: nn.Module, scale: float | None) -> None:
    """Put a new cosine classifier in the place of the model's linear one.

    Args:
        model: with one linear classifier; changed in place.
        scale: of the cosines; None for the usual one.
    """
    check_headed(model, "for a cosine classifier")
    old = cast("HeadedModel", model).get_classifier()
    if isinstance(old, CosineClassifier):
        return
    if not isinstance(old, nn.Linear):
        raise ValueError(
            f"model must have a linear classifier to be replaced by a cosine one, got {type(old).__name__} "
            f"from {type(model).__name__}.get_classifier()"
        )
    like = old.weight
    new = CosineClassifier(
        old.in_features,
        old.out_features,
        scale=_SCALE if scale is None else scale,
        device=like.device,
        dtype=like.dtype,
    )
    replace_classifier(model, new)


def replace_classifier(model: nn.Module, new: nn.Module) -> None:
    """Put `new` in the place of the model's classifier."""
    old = cast("HeadedModel", model).get_classifier()
    for path, module in list(model.named_modules()):
        if module is old:
            model.set_submodule(path, new)
