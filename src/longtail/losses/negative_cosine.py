"""Negative cosine similarity with a stop-gradient: the output for one view is pulled towards that for another.

    L(p, g) = -p · sg(g) / (‖p‖ ‖sg(g)‖)

with the prediction p, the goal g and the stop-gradient sg. Without it both outputs could collapse to a constant. It
compares two outputs and has no labels, so it is not in `LOSSES`.

Reference: Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, eq. 1 and 3.
"""

import torch.nn.functional as F
from torch import Tensor

from longtail._typing import Reduction
from longtail.losses._checks import at_least_float32
from longtail.losses._reduction import check_reduction, reduce_losses


def negative_cosine_loss(prediction: Tensor, goal: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Minus the cosine between rows; see the module's docstring for the equation.

    Args:
        prediction: (B, D), any floating dtype; computed in float32 or better. Only it gets a gradient.
        goal: (B, D), treated as a constant.
        reduction: "none", "mean" over the batch, or "sum".

    Returns:
        -1 (same direction) to 1 (opposite). A row of zeros has no direction: its loss is 0.

    Example:
        >>> import torch
        >>> negative_cosine_loss(torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 0.0]]))  # -cos 45°
        tensor(-0.7071)
    """
    check_reduction(reduction)
    if prediction.ndim != 2 or prediction.shape != goal.shape:
        raise ValueError(
            "prediction and goal must have the same shape (batch, features), "
            f"got {tuple(prediction.shape)} and {tuple(goal.shape)}"
        )
    losses = -F.cosine_similarity(at_least_float32(prediction), at_least_float32(goal.detach()), dim=1)
    return reduce_losses(losses, reduction)
