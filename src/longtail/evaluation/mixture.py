"""The state of the components of a compound batch normalization layer, as a report shows it.

The method records the numbers while it trains; this module describes them, and `mixture_record` how they change. With
priors τ_j of M components,

    effective components = exp(−Σ_j τ_j log τ_j),   1 (one has all the mass) ... M (all the same)

A mixture has collapsed, and is of no use, when one component has all the mass or when all components are the same.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

MASS_OF_ONE = 1.05
SAME = 1e-3


@dataclass(frozen=True)
class MixtureLayer:
    """One layer of M components.

    Args:
        name: the layer's path in the model.
        priors: (M,), the mass of each component, summing to 1.
        distances: (M, M), between components: |μ_i − μ_j| in units of the pooled standard deviation,
            averaged over channels.
        usage: (K, M), the mean responsibility of each component over the images of each class; rows sum to 1,
            and a row is None for a class without images.
    """

    name: str
    priors: tuple[float, ...]
    distances: tuple[tuple[float, ...], ...]
    usage: tuple[tuple[float, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        components = len(self.priors)
        if not math.isclose(sum(self.priors), 1, abs_tol=1e-3):
            raise ValueError(f"priors of {self.name} must sum to 1, got {sum(self.priors):.4g}")
        if {len(row) for row in (self.distances, *self.distances)} != {components}:
            raise ValueError(f"distances of {self.name} must be {components} by {components}, one for each pair")
        if {len(row) for row in self.usage if row is not None} - {components}:
            raise ValueError(f"usage of {self.name} must have {components} components in each row")

    @property
    def effective_components(self) -> float:
        """The number of equally heavy components with the same entropy."""
        return math.exp(-sum(p * math.log(p) for p in self.priors if p > 0))

    @property
    def nearest(self) -> float | None:
        """The smallest distance between two components; None with one component."""
        return min((d for i, row in enumerate(self.distances) for d in row[i + 1 :]), default=None)

    @property
    def farthest(self) -> float | None:
        """The largest distance between two components; None with one component."""
        return max((d for i, row in enumerate(self.distances) for d in row[i + 1 :]), default=None)

    @property
    def collapse(self) -> str | None:
        """How the mixture has collapsed; None if it has not."""
        if len(self.priors) < 2:
            return None
        if self.effective_components < MASS_OF_ONE:
            return f"collapsed: one component has {max(self.priors):.1%} of the mass"
        if self.farthest is not None and self.farthest < SAME:
            return "collapsed: all components are the same"
        return None

    @property
    def mean_distance(self) -> float | None:
        """The mean over pairs of components; None with one component."""
        pairs = [d for i, row in enumerate(self.distances) for d in row[i + 1 :]]
        return sum(pairs) / len(pairs) if pairs else None

    def use_by(self, classes: Iterable[int]) -> tuple[float, ...] | None:
        """The mean use of each component over those of `classes` that were seen; None if there are none."""
        rows = [row for k in classes if k < len(self.usage) and (row := self.usage[k]) is not None]
        return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True)) if rows else None
