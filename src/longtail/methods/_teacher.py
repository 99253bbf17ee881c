"""The network of a finished run that a method learns from."""

import torch
from torch import Tensor, nn


class Teacher:
    """Answers for images, without gradients. It is no module, so that no state dict or optimiser has it.

    Args:
        network: frozen and in eval mode; None where a trained model is only loaded.
        num_classes: K, which its answers must have.
        owner: the method, for errors.
    """

    def __init__(self, network: nn.Module | None, num_classes: int, owner: str) -> None:
        self.network, self.num_classes, self.owner = network, num_classes, owner

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """The logits (B, K) of images, in float32."""
        if self.network is None:
            raise ValueError(f"teacher must be the network of a finished run to train {self.owner}, got None")
        logits: Tensor = self.network(images)
        if logits.shape[1] != self.num_classes:
            raise ValueError(
                f"teacher must have {self.num_classes} classes, as the data, got {logits.shape[1]} "
                "(name a run on the same data)"
            )
        return logits.float()
