"""The test images to look at first: the most confident wrong predictions."""

import numpy as np
import numpy.typing as npt

from longtail.evaluation._arrays import Ints, as_logits, as_target, softmax


def surest_mistakes(logits: npt.ArrayLike, target: npt.ArrayLike, *, limit: int = 24) -> Ints:
    """Row numbers of at most `limit` wrong predictions, the most confident first.

    Each is a wrong label, a class that looks like another, or a real error of the model.

    Example:
        >>> surest_mistakes([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]], [1, 1, 1]).tolist()
        [0, 2]
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    confidence = softmax(values).max(axis=1)
    wrong = np.flatnonzero(values.argmax(axis=1) != labels)
    return wrong[np.argsort(-confidence[wrong], kind="stable")][:limit]
