"""The contract of heads: ways to train the last layer on features that do not change.

    classifier = HEADS["linear"](class_counts).fit(features, target)    # features (N, D) to logits (N, K)

Features are standardised: each has mean 0 and spread 1 over the training images, as `StageFeatureNet` makes them. A fit
takes seconds, and the same features, labels and settings give the same classifier, bit for bit on one machine.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from longtail._registry import Registry
from longtail.class_counts import ClassCounts


class Head(ABC):
    """One way; the tests hold its contract for every name in `HEADS`.

    `__init__(class_counts, *, ...)` has keyword arguments that a YAML file can hold, each kept in an attribute of its
    own name.

    Args:
        class_counts: training images of each class.

    Attributes:
        knob: the argument that matters most; None if there is none.
        values: of the knob, to be tried by cross-validation, the first being the default.
        alternatives: further settings, each tried with the best value of the knob, and kept if it is better.
    """

    knob: ClassVar[str | None] = None
    values: ClassVar[tuple[float, ...]] = ()
    alternatives: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __init__(self, class_counts: Sequence[int]) -> None:
        self.class_counts = ClassCounts(class_counts)

    @abstractmethod
    def blank(self, in_features: int) -> nn.Module:
        """A classifier of the right form, not trained, for weights to be loaded into."""

    @abstractmethod
    def fit(self, features: Tensor, target: Tensor) -> nn.Module:
        """Train a classifier on features (N, D) with labels (N,)."""

    def settings(self) -> dict[str, Any]:
        """The resolved keyword arguments."""
        names = [p.name for p in inspect.signature(type(self)).parameters.values() if p.kind is p.KEYWORD_ONLY]
        return {name: getattr(self, name) for name in names}


HEADS = Registry[type[Head]]("heads")
