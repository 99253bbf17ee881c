"""Count profiles: how many images each class keeps when a balanced set is made long-tailed.

With K classes numbered k = 0 ... K-1, n_max images in the first and imbalance factor ρ = n_max / n_min:

| Profile | n_k | Seen in |
|---|---|---|
| exponential | n_max ρ^(−k/(K−1)) | CIFAR-LT (Cui et al., CVPR 2019), the one of the paper |
| step | n_max for the first half, n_max/ρ for the rest | Buda et al., Neural Networks 2018 |
| pareto | n_max (k+1)^(−a), a = log ρ / log K | ranks of a Pareto law, as in ImageNet-LT (Liu et al. 2019) |

All are rounded down, as the published subsets are.
"""

from collections.abc import Callable, Iterable
from math import log

from longtail._registry import Registry
from longtail.class_counts import ClassCounts

Profile = Callable[[int, int, float], ClassCounts]
PROFILES: Registry[Profile] = Registry("profiles")


@PROFILES.register("exponential")
def exponential(max_count: int, num_classes: int, imbalance_factor: float) -> ClassCounts:
    """Counts that fall by the same ratio from class to class: n_max ρ^(−k/(K−1)).

    Example:
        >>> list(exponential(5000, 10, 100))
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    _check(max_count, num_classes, imbalance_factor)
    last = max(num_classes - 1, 1)
    return _counts(max_count * imbalance_factor ** (-k / last) for k in range(num_classes))


@PROFILES.register("step")
def step(max_count: int, num_classes: int, imbalance_factor: float) -> ClassCounts:
    """The first half of the classes has n_max images, the rest (the larger half if K is odd) n_max/ρ.

    Example:
        >>> list(step(500, 5, 100))
        [500, 500, 5, 5, 5]
    """
    _check(max_count, num_classes, imbalance_factor)
    head = num_classes // 2 or 1
    return _counts(max_count if k < head else max_count / imbalance_factor for k in range(num_classes))


@PROFILES.register("pareto")
def pareto(max_count: int, num_classes: int, imbalance_factor: float) -> ClassCounts:
    """A power law in the rank of the class: n_max (k+1)^(−log ρ / log K).

    Example:
        >>> list(pareto(1000, 4, 16))
        [1000, 250, 111, 62]
    """
    _check(max_count, num_classes, imbalance_factor)
    power = log(imbalance_factor) / log(max(num_classes, 2))
    return _counts(max_count * (k + 1) ** -power for k in range(num_classes))


def _check(max_count: int, num_classes: int, imbalance_factor: float) -> None:
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    if max_count < 1:
        raise ValueError(f"max_count must be at least 1, got {max_count}")
    if not imbalance_factor >= 1:
        hint = f" (did you mean {1 / imbalance_factor:g}?)" if 0 < imbalance_factor < 1 else ""
        raise ValueError(f"imbalance_factor must be at least 1, got {imbalance_factor:g}{hint}")
    if imbalance_factor > max_count:
        raise ValueError(
            f"imbalance_factor must be at most max_count = {max_count}, got {imbalance_factor:g}: "
            "the smallest class would have no image"
        )


def _counts(sizes: Iterable[float]) -> ClassCounts:
    # The last class is exactly n_max/ρ, which floating point may put a hair below the whole number.
    return ClassCounts(int(size + 1e-6) for size in sizes)
