"""The second stage of a method that trains features first and then the classifier alone."""

from typing import Self

import torch
from torch import Tensor, nn

from longtail.methods._checks import check_positive
from longtail.methods._norms import FixedPart, NormPolicy
from longtail.methods._whole_stages import check_starts, whole_stages


class SecondStage(nn.Module):
    """When the features are fixed, at which learning rate the rest learns, and what becomes of batch norms then.

    A method registers it after its model: on `train(mode)` of the method, the stage then has the last word on the mode
    of the fixed part.

    Args:
        model: all of it.
        classifier: the part of it that may learn.
        norm_policy: see `FixedPart`.
        start: the share of the training after which the classifier learns alone.
        lr_scale: multiplies the learning rate then.

    Attributes:
        begun: a buffer: what is done once, when the stage begins, is not done again on resuming.
        on: the same for code that must not wait for a device.
        starts: of both stages, as `Method.stages` has them.
    """

    begun: Tensor

    def __init__(
        self, model: nn.Module, classifier: nn.Module, norm_policy: NormPolicy, *, start: float, lr_scale: float
    ) -> None:
        check_positive(classifier_lr_scale=lr_scale)
        check_starts(classifier_from=start)
        super().__init__()
        self._fixed = FixedPart(model, classifier, norm_policy)
        self._lr_scale = lr_scale
        self.starts: tuple[float, ...] = (0.0, start)
        self.on = False
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def plan(self, epochs: int) -> tuple[float, ...]:
        """The starts, once each stage has whole epochs."""
        self.starts = whole_stages(self.starts, epochs)
        return self.starts

    def set_progress(self, progress: float) -> bool:
        """Be in the stage of this position; whether the second one begins with this call."""
        on = progress >= self.starts[1]
        begins = on and not bool(self.begun)
        if begins:
            self._fixed.begin()
        self.begun.fill_(on)
        self._fixed.set_momenta(fixed=on)
        if self.on and not on:
            self._fixed.release(self.training)
        self.on = on
        self.train(self.training)
        return begins

    @property
    def lr_scale(self) -> float:
        """Multiplies the learning rate, now."""
        return self._lr_scale if self.on else 1.0

    def gradients(self) -> torch.set_grad_enabled:
        """The context of the fixed part: without gradients in this stage."""
        return torch.set_grad_enabled(not self.on and torch.is_grad_enabled())

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; while the stage is on, that of the fixed part as its policy says."""
        super().train(mode)
        if mode and self.on:
            self._fixed.set_mode()
        return self
