"""Which test images to show: those that the model is surest of and wrong about."""

import numpy as np
import numpy.typing as npt

from longtail.evaluation._arrays import Ints, as_logits, as_target, softmax


def surest_mistakes(logits: npt.ArrayLike, target: npt.ArrayLike, *, limit: int = 24) -> Ints:
    """Row numbers of at most `limit` wrong predictions, the most confident first.

    They are what to look at: a wrong label, a class that cannot be told from another, or a real fault.

    Example:
        >>> surest_mistakes([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]], [1, 1, 1]).tolist()
        [0, 2]
    """
    values = as_logits(logits)
    labels = as_target(target, num_images=len(values), num_classes=values.shape[1])
    confidence = softmax(values).max(axis=1)
    wrong = np.flatnonzero(values.argmax(axis=1) != labels)
    return wrong[np.argsort(-confidence[wrong], kind="stable")][:limit]
