"""The contract of all losses of a classifier, and the registry."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from longtail._registry import Registry
from longtail._typing import Reduction
from longtail.losses._checks import ClassCountsLike, counts_tensor
from longtail.losses._reduction import check_reduction


class LongTailLoss(nn.Module, ABC):
    """A loss of `(logits, target)` that knows how many training images each class has.

    The contract, which the tests check for every name in `LOSSES`:

    - `__init__(class_counts, *, ..., reduction="mean")`, keyword arguments with the paper's defaults. Each is kept in
      an attribute of its own name, as in scikit-learn, so that a run can record the resolved settings.
    - `forward(logits, target)`: logits (B, K) in any floating dtype, target (B,) int64 class indices.
      The arithmetic is float32 (float64 for float64 logits) and so is the result. There is no `ignore_index`
      and no soft target: for mixed labels, mix the losses, `share * loss(z, a) + (1 - share) * loss(z, b)`,
      which for cross-entropy and its shifted forms is exactly the loss of the soft target.
    - `reduction`: "sum" is the sum of "none". "mean" divides by the batch size or, in a class-weighted
      cross-entropy, by the sum of the weights of the batch's labels, as `F.cross_entropy(weight=...)` does.
    - Counts are at least 1: a class without training images must be left out of the class list.
    - `state_dict()` is empty: counts are a setting, not something learnt.

    Args:
        class_counts: the number of training images of each class, at least 1.
        reduction: "none", "mean" or "sum".
    """

    class_counts: Tensor

    def __init__(self, class_counts: ClassCountsLike, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.reduction: Reduction = reduction
        # Integers stay integers, so that `module.half()` does not round them. A copy: the caller's may change.
        self.register_buffer("class_counts", counts_tensor(class_counts).clone(), persistent=False)

    def set_progress(self, progress: float) -> None:
        """Move to `progress`, the share of the training that is done, 0 to 1; losses with a schedule follow it.

        Called at the start of each epoch. It is a position, not a step, so a resumed run needs nothing else.
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress must be from 0 to 1, got {progress} (epoch / epochs)")

    def label_weights(self) -> Tensor | None:
        """The weights (K,) that "none" has multiplied by and "mean" divides by; None if it divides by the batch size.

        With them, the mean over a batch can be put together from its parts.
        """
        return None

    def cosine_scale(self) -> float | None:
        """What multiplies the logits of a loss that takes cosines, from -1 to 1; None for a loss of any logits."""
        return None

    @abstractmethod
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of `logits` (B, K) for the labels `target` (B,)."""

    def extra_repr(self) -> str:
        """The number of classes, then the settings."""
        settings = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int | float | str) and not name.startswith("_") and name != "training"
        }
        return ", ".join(
            [f"classes={len(self.class_counts)}", *(f"{name}={value!r}" for name, value in settings.items())]
        )


LOSSES = Registry[type[LongTailLoss]]("losses")
