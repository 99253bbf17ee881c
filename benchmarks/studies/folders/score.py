"""The score of a run: the mean over classes of the share of test images that are right, for all classes and by group.

Test images are in the order of their classes, so that labels are known from the number of test images of each class.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.class_counts import ClassCounts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def labels_of(test_counts: Sequence[int]) -> Ints:
    """The label of each test image."""
    return np.repeat(np.arange(len(test_counts)), test_counts)


def class_means(values: Floats, test_counts: Sequence[int]) -> Floats:
    """The mean of `values` (..., N) over the images of each class, (..., K); images are in the order of classes."""
    starts = np.cumsum([0, *test_counts[:-1]])
    return np.asarray(np.add.reduceat(values, starts, axis=-1) / np.asarray(test_counts))


def score(predictions: Sequence[int], test_counts: Sequence[int], class_counts: Sequence[int]) -> dict[str, float]:
    """Balanced accuracy, and that of the many-, medium- and few-shot classes; a group without classes is absent.

    Args:
        predictions: the predicted class of each test image, in the order of `labels_of`.
        test_counts: the test images of each class.
        class_counts: the training images of each class, which make the groups.

    Example:
        >>> score([0, 0, 1, 0], [2, 2], [500, 5])
        {'balanced': 0.75, 'many': 1.0, 'few': 0.5}
    """
    right = (np.asarray(predictions) == labels_of(test_counts)).astype(float)
    recall = class_means(right, test_counts)
    groups = ClassCounts(class_counts).groups()
    return {"balanced": float(recall.mean())} | {group: float(recall[k].mean()) for group, k in groups.items()}
