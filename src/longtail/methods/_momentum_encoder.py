"""A slow copy of a network, and a memory of what it said of the last images: the two halves of momentum contrast.

Reference: He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020.
"""

import copy
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.methods._checks import linear_classifier
from longtail.methods._whole_batch import whole_batch
from longtail.methods.base import HeadedModel


class MomentumEncoder(nn.Module):
    """A network's features through a projection, by a copy of both that follows them slowly; see `follow`.

    Args:
        model: the network, with a linear classifier; copied.
        projection: features (B, D) to keys (B, d); copied.
        momentum: what is kept of the copy at each step, from 0 to 1.
    """

    def __init__(self, model: nn.Module, projection: nn.Module, momentum: float) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
        self.model, self.projection = copy.deepcopy(model), copy.deepcopy(projection)
        self.requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """The keys of images, of length 1; without gradients."""
        model = cast("HeadedModel", self.model)
        return unit(self.projection(model.forward_head(model.forward_features(images), pre_logits=True)))

    @torch.no_grad()
    def follow(self, model: nn.Module, projection: nn.Module) -> None:
        """Move towards the network; the statistics of batch norms are those of the copy's own passes."""
        slow = [*self.model.parameters(), *self.projection.parameters()]
        for old, new in zip(slow, [*model.parameters(), *projection.parameters()], strict=True):
            old.lerp_(new, 1 - self.momentum)


class KeyQueue(nn.Module):
    """The keys of the last images with their labels, newest first, the same on every rank.

    Args:
        size: how many it holds.
        width: d.

    Attributes:
        keys: (size, d).
        labels: (size,); -1 where there is no key yet.
    """

    keys: Tensor
    labels: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, width))
        self.register_buffer("labels", torch.full((size,), -1))

    def check_batch(self, images: int) -> None:
        """Refuse a batch that is larger than the queue."""
        if images > len(self.labels):
            raise ValueError(
                f"queue_size must be at least the {images} images of a batch, got {len(self.labels)} "
                f"(set method.queue_size={8 * images}, or use smaller batches)"
            )

    @torch.no_grad()
    def push(self, keys: Tensor, labels: Tensor) -> None:
        """Add the keys of a step, of all ranks."""
        keys, labels = whole_batch(keys), whole_batch(labels)
        self.check_batch(len(labels))
        size = len(self.labels)
        self.keys.copy_(torch.cat([keys.to(self.keys.dtype), self.keys])[:size])
        self.labels.copy_(torch.cat([labels, self.labels])[:size])


def unit(rows: Tensor) -> Tensor:
    """Rows of length 1, in float32."""
    return F.normalize(rows.float(), dim=1)


def build_projection(model: nn.Module, width: int, reason: str) -> nn.Sequential:
    """Linear, ReLU, linear: from the features (B, D) of a model with a linear classifier to (B, `width`)."""
    if width < 1:
        raise ValueError(f"projection_size must be at least 1, got {width}")
    size = linear_classifier(model, reason).in_features
    return nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, width))
