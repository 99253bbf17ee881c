"""The second stage of a method that trains features first and then the classifier alone."""

import torch
from torch import Tensor, nn

from longtail.methods._norms import FixedPart, NormPolicy


class SecondStage(nn.Module):
    """Whether the features are fixed, and what becomes of their batch norms then.

    Args:
        model: all of it.
        classifier: the part of it that may learn.
        norm_policy: see `FixedPart`.

    Attributes:
        begun: a buffer: what is done once, when the stage begins, is not done again on resuming.
        on: the same for code that must not wait for a device.
    """

    begun: Tensor

    def __init__(self, model: nn.Module, classifier: nn.Module, norm_policy: NormPolicy) -> None:
        super().__init__()
        self._fixed = FixedPart(model, classifier, norm_policy)
        self.on = False
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def switch(self, on: bool) -> bool:
        """Be in the stage, or not; whether it begins with this call."""
        begins = on and not bool(self.begun)
        if begins:
            self._fixed.begin()
        self.begun.fill_(on)
        self._fixed.set_momenta(fixed=on)
        self.on = on
        return begins

    def set_mode(self, mode: bool) -> None:
        """The last word on training and eval mode of the fixed part, after `train(mode)` of the method."""
        if mode and self.on:
            self._fixed.set_mode()

    def gradients(self) -> torch.set_grad_enabled:
        """The context of the fixed part: without gradients in this stage."""
        return torch.set_grad_enabled(not self.on and torch.is_grad_enabled())
