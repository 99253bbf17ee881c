"""95 % intervals by resampling the test images.

R times, N images are drawn with replacement from the N test images and the metric is computed again; the
interval is the middle 95 % of the R values. It says how much the number would move with another test set of
this size. It says nothing about another training seed.

Two ways to draw:

- `stratified`: n_k images from the n_k of each class. The benchmarks' test sets fix n_k, so this is the default
  where every class has enough images. With n images in a class it understates that class's variance by the
  factor (n − 1)/n, so it is useless with one or two.
- `plain`: N images from all. The default where a class with support has fewer than five images. A class
  that is not drawn is left out of that resample's means.

Calibration error is biased: noise in a bin adds to |gap|, in the sample and again in each resample. With the
bootstrap's estimate of that bias, b = mean(values) − estimate, the quantiles are moved back by b, and the one
on the far side by 2b, so that the interval holds both the estimate and the bias-corrected estimate. For the
other metrics b is nearly zero. Measured on 20 simulated classes, 200 test sets each: with 1,000 images
95 % intervals contain the true balanced accuracy 95 % of the time and the true ECE 94 %; with 200 images, 92 %
and 80 %: below a thousand images an ECE is a rough figure.

Where all images are right, or all are wrong, every resample agrees; the interval is then Wilson's (`widen_interval`).

Reference: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 8, 10 and 13.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from longtail.evaluation._arrays import Ints

Resampling = Literal["stratified", "plain"]

SMALLEST_STRATUM = 5
_ROWS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None for both ends where there is one image, which gives no interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4f}" if self.low is None else f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def choose_resampling(target: Ints) -> Resampling:
    """`stratified` if each class with an image has at least five, else `plain`."""
    support = np.bincount(target)
    return "stratified" if support[support > 0].min() >= SMALLEST_STRATUM else "plain"


def resample(target: Ints, *, replicates: int, resampling: Resampling, seed: int) -> Iterator[Ints]:
    """Draw `replicates` resamples of the images, in chunks (R, N) of row numbers."""
    if replicates < 1:
        raise ValueError(f"replicates must be at least 1, got {replicates}")
    generator = np.random.default_rng(seed)
    num_images = len(target)
    order = np.argsort(target, kind="stable")
    support = np.bincount(target)
    # For each position of the sorted images: where its class starts, and how many the class has.
    start = np.repeat(np.cumsum(support) - support, support)
    size = np.repeat(support, support)
    at_once = max(1, _ROWS_AT_ONCE // num_images)
    for done in range(0, replicates, at_once):
        shape = (min(at_once, replicates - done), num_images)
        if resampling == "plain":
            yield generator.integers(num_images, size=shape)
        else:
            within = (generator.random(shape) * size).astype(np.int64)
            yield order[start + np.minimum(within, size - 1)]  # the product may round up to `size`


def bootstrap_interval(
    estimate: float, values: npt.NDArray[np.float64], *, level: float = 0.95
) -> tuple[float | None, float | None]:
    """The middle `level` of the resampled `values`, corrected for their bias."""
    present = values[~np.isnan(values)]
    if present.size < 2:
        return None, None
    tail = (1 - level) / 2
    low, high = np.quantile(present, [tail, 1 - tail])
    bias = present.mean() - estimate
    # Once for the resampled values, and once more, on one side, for the estimate itself.
    return float(low - bias - max(bias, 0.0)), float(high - bias - min(bias, 0.0))
