"""Words shared by all: type aliases and small protocols."""

from typing import Literal

Reduction = Literal["none", "mean", "sum"]
Augment = Literal["none", "weak", "strong"]
