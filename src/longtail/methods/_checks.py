"""Checks of the arguments of methods."""

from typing import cast

from torch import nn

from longtail.methods.base import HeadedModel, check_headed


def linear_classifier(model: nn.Module, reason: str) -> nn.Linear:
    """The last layer of a model, once it is known to be linear."""
    check_headed(model, reason)
    classifier = cast("HeadedModel", model).get_classifier()
    if not isinstance(classifier, nn.Linear):
        raise ValueError(f"model must have a linear classifier {reason}, got {type(classifier).__name__}")
    return classifier


def check_positive(**values: float) -> None:
    """Raise unless each of the named numbers is positive and finite."""
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive and finite, got {value}")
