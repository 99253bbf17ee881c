"""The number of training images of each class, and what follows from it: priors, imbalance, many/medium/few.

The one domain type that all layers share; plain Python, so that it can be used without torch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, overload

Group = Literal["many", "medium", "few"]
GROUPS: tuple[Group, ...] = ("many", "medium", "few")


@dataclass(frozen=True)
class ClassCounts(Sequence[int]):
    """The number of training images of each class, in the order of the classes.

    Args:
        counts: one number per class, zero or more.

    Example:
        >>> counts = ClassCounts([500, 50, 5])
        >>> counts.imbalance_factor
        100.0
        >>> counts.groups()
        {'many': [0], 'medium': [1], 'few': [2]}
    """

    counts: tuple[int, ...]

    def __init__(self, counts: Iterable[int]) -> None:
        values = tuple(int(count) for count in counts)
        if not values:
            raise ValueError("class_counts must have at least one class, got none")
        if min(values) < 0:
            raise ValueError(f"class_counts must be zero or more, got {min(values)}")
        object.__setattr__(self, "counts", values)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.counts[index]

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.counts)

    @property
    def total(self) -> int:
        """The number of images."""
        return sum(self.counts)

    @property
    def priors(self) -> tuple[float, ...]:
        """Each class's share of the images."""
        if self.total == 0:
            raise ValueError("class_counts must count at least one image to have priors, got none")
        return tuple(count / self.total for count in self.counts)

    @property
    def imbalance_factor(self) -> float:
        """The size of the largest class over that of the smallest with an image; at least 1."""
        present = [count for count in self.counts if count]
        return max(present) / min(present) if present else 1.0

    @property
    def effective_classes(self) -> float:
        """The number of equally large classes with the same entropy: exp(-Σ π_k log π_k)."""
        return math.exp(-sum(p * math.log(p) for p in self.priors if p > 0))

    def groups(self, *, many: int = 100, few: int = 20) -> dict[Group, list[int]]:
        """The classes with more than `many` images, those with fewer than `few`, and those in between.

        The defaults are the benchmarks' (Liu et al., CVPR 2019). An empty group is absent.
        """
        if few > many + 1:
            raise ValueError(f"few must be at most many + 1, got few={few} and many={many}")
        members: dict[Group, list[int]] = {group: [] for group in GROUPS}
        for k, count in enumerate(self.counts):
            members["many" if count > many else "few" if count < few else "medium"].append(k)
        return {group: classes for group, classes in members.items() if classes}
