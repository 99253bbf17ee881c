"""Tests that stay honest when many things are compared at once.

With seven metrics, seven separate 95 % intervals would exclude a true 0 far more often than once in twenty
comparisons. Joint intervals are value ± q·s, with s the standard deviation of that metric's resampled
differences and q the 95 % quantile, over the resamples, of the largest |difference − mean|/s of any metric
(Westfall and Young, "Resampling-Based Multiple Testing", 1993).

For a single class, the exact McNemar test: of the images that exactly one run gets right, b by one and c by
the other, a fair coin would split b + c into b and c (McNemar, 1947). Of a hundred classes five would seem to
differ by chance, so their p-values are corrected together (Holm, 1979).
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def joint_half_widths(values: npt.NDArray[np.float64], *, level: float) -> list[float]:
    """Half the width of each metric's interval, for resampled differences `values` (metrics, resamples)."""
    centred = values - np.nanmean(values, axis=1, keepdims=True)
    spread = np.nanstd(values, axis=1, keepdims=True)
    # A metric that never changes has no width and does not count in the quantile.
    scaled = np.abs(centred) / np.where(spread > 0, spread, np.inf)
    factor = np.quantile(np.nanmax(scaled, axis=0), level)
    return [float(factor * s) for s in spread[:, 0]]


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided exact p-value of `gained` against `lost` under a fair coin."""
    trials = gained + lost
    tail = sum(math.comb(trials, k) for k in range(min(gained, lost) + 1))
    return float(min(1.0, 2 * tail / 2**trials))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number: the i-th smallest of m times (m − i + 1), made monotone."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, p_values[i] * (len(p_values) - rank)))
        corrected[i] = largest
    return corrected
