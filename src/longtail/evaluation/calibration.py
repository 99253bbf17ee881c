"""Whether a probability of 0.8 means right eight times out of ten.

Images are put in B bins of equal width by confidence (the largest probability). With n_b images, accuracy
acc_b and mean confidence conf_b in bin b,

    ECE = Σ_b (n_b / N) |acc_b − conf_b|

(Guo et al., ICML 2017, eq. 3). It sees only the predicted class, so a model may look calibrated while its
rare classes are not. The class-wise error repeats the sum for each class k with p_k in place of the
confidence and "is of class k" in place of "is right", and takes the mean over the classes with support
(Kull et al., NeurIPS 2019). ECE is biased upwards when bins hold few images, so compare groups of similar size.
"""

from dataclasses import dataclass

import numpy as np

from longtail.evaluation._arrays import Floats, Ints


@dataclass(frozen=True)
class Reliability:
    """One reliability diagram: for each bin of equal width the images, mean confidence and accuracy.

    An empty bin has a count of 0 and None for the rest.
    """

    counts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]

    @property
    def error(self) -> float | None:
        """The expected calibration error of these images; None if there are none."""
        total = sum(self.counts)
        if not total:
            return None
        bins = zip(self.counts, self.confidence, self.accuracy, strict=True)
        return sum(n * abs(a - c) for n, c, a in bins if c is not None and a is not None) / total


def bin_index(probability: Floats, bins: int) -> Ints:
    """The bin [b/B, (b+1)/B) of each probability; 1 belongs to the last."""
    return np.minimum((probability * bins).astype(np.int64), bins - 1)


def reliability(confidence: Floats, correct: Floats, *, bins: int = 15) -> Reliability:
    """The reliability diagram of images with these confidences, right (1) or wrong (0)."""
    index = bin_index(confidence, bins)
    counts = np.bincount(index, minlength=bins)
    present = np.maximum(counts, 1)
    mean_confidence = np.bincount(index, weights=confidence, minlength=bins) / present
    accuracy = np.bincount(index, weights=correct, minlength=bins) / present
    return Reliability(
        counts=tuple(int(n) for n in counts),
        confidence=tuple(float(c) if n else None for n, c in zip(counts, mean_confidence, strict=True)),
        accuracy=tuple(float(a) if n else None for n, a in zip(counts, accuracy, strict=True)),
    )


def calibration_error_per_class(probs: Floats, target: Ints, *, bins: int = 15) -> Floats:
    """For each class k, Σ_b |Σ_{i in b} (1[y_i = k] − p_ik)| / N; NaN for a class without images."""
    num_images, num_classes = probs.shape
    support = np.bincount(target, minlength=num_classes)
    errors = np.full(num_classes, np.nan)
    for k in np.flatnonzero(support):
        column = probs[:, k]
        gap = np.bincount(bin_index(column, bins), weights=(target == k) - column, minlength=bins)
        errors[k] = np.abs(gap).sum() / num_images
    return errors
