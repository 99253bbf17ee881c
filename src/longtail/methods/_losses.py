"""The classification loss of a method: from the words of a YAML file, and as a mean over the whole batch of a step.

A weighted mean, and that of mixed images, is the one of the whole batch, whatever the micro-batches and the ranks:

    L = Σ_i ( c_i ℓ(z_i, y_i) + d_i ℓ(z_i, y'_i) ) / N
    c_i = s_i v_{y_i} N / M,    d_i = (1 - s_i) v_{y'_i} N / M
    M   = Σ_i ( s_i v_{y_i} u_{y_i} + (1 - s_i) v_{y'_i} u_{y'_i} )

with the losses ℓ of single images, their logits z, labels y and, if they are mixed, second labels y' with the share s
of the first (else 1). v are class weights of the method, and u those that the loss has by itself, as `label_weights`
gives them: they are in ℓ already. N and M are those of all ranks. `weigh_batch`, in `prepare`, computes c and d once a
step; they go with each image, so that `batch_loss`, in `forward`, is a plain mean over any micro-batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from longtail.data.mixing import Mixed
from longtail.data.views import Batch
from longtail.losses import LOSSES, LongTailLoss
from longtail.methods._over_ranks import sum_over_ranks
from longtail.methods.base import resolved_arguments

# Of `Batch.extra`: y', s, c and d.
_SECOND, _SHARE, _WEIGHT, _SECOND_WEIGHT = "second_target", "share", "weight", "second_weight"


def build_loss(loss: str, class_counts: Sequence[int], settings: Mapping[str, Any] | None) -> LongTailLoss:
    """The loss of that name with those keyword arguments; it must give one number for a batch."""
    built = LOSSES[loss](class_counts, **(settings or {}))
    if built.reduction == "none":
        raise ValueError("loss_settings must not set reduction to 'none': a step needs one number")
    return built


def loss_arguments(loss: LongTailLoss) -> dict[str, Any]:
    """The resolved keyword arguments of a loss, as `loss_settings` takes them."""
    return resolved_arguments(loss)


def of_each_image(loss: LongTailLoss) -> LongTailLoss:
    """The loss with one number for each image, as `batch_loss` takes it; changed in place."""
    if loss.reduction != "mean":
        raise ValueError(
            f"loss_settings must leave reduction at 'mean', got {loss.reduction!r} "
            "(the mean is that of the whole batch, so that micro-batches and ranks do not change it)"
        )
    loss.reduction = "none"
    return loss


def mixed_batch(batch: Batch, mixed: Mixed) -> Batch:
    """The batch with its images mixed; the second labels and the shares go with each image."""
    extra = batch.extra | {_SECOND: mixed.target_b, _SHARE: mixed.weight}
    return batch._replace(views=(mixed.images,), target=mixed.target_a, extra=extra)


def unmixed_batch(batch: Batch) -> Batch:
    """The batch of a step that does not mix, where another rank may: `weigh_batch` then sums over both."""
    return batch._replace(extra=batch.extra | {_SHARE: torch.ones(len(batch.target), device=batch.target.device)})


def weigh_batch(batch: Batch, loss: LongTailLoss, weights: Tensor | None = None, *, over_ranks: bool = True) -> Batch:
    """The batch with c and d of the module's docstring, if they are other than 1.

    Args:
        batch: the whole one of this rank; mixed or not.
        loss: from `of_each_image`.
        weights: v, (K,); None for ones.
        over_ranks: whether N and M are those of all ranks, which then must call this together.
    """
    own = loss.label_weights()
    if own is None and weights is None and _SHARE not in batch.extra:
        return batch
    ones = batch.extra.get(_SHARE, torch.ones(len(batch.target), device=batch.target.device))
    given = torch.ones(len(loss.class_counts), device=ones.device) if weights is None else weights.to(ones.device)
    counted = given if own is None else given * own.to(ones.device)
    shares = {_WEIGHT: (batch.target, ones)}
    if _SECOND in batch.extra:
        shares[_SECOND_WEIGHT] = (batch.extra[_SECOND], 1 - ones)
    mass = torch.stack([(share * counted[target]).sum() for target, share in shares.values()]).sum()
    sums = torch.stack([ones.new_tensor(float(len(ones))), mass])
    images, mass = sum_over_ranks(sums) if over_ranks else sums
    scaled = {name: share * given[target] * images / mass for name, (target, share) in shares.items()}
    return batch._replace(extra=batch.extra | scaled)


def batch_loss(loss: LongTailLoss, logits: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """L of the module's docstring for a micro-batch of what `weigh_batch` gave.

    Args:
        loss: from `of_each_image`.
        logits: z, (B, K), as the loss takes them.
        batch: one that `weigh_batch` has not seen counts as a whole one, of this rank alone.
        weights: as in `weigh_batch`.
    """
    if _WEIGHT not in batch.extra:
        batch = weigh_batch(batch, loss, weights, over_ranks=False)
    losses: Tensor = loss(logits, batch.target)
    if _WEIGHT in batch.extra:
        losses = batch.extra[_WEIGHT] * losses
    if _SECOND in batch.extra:
        losses = losses + batch.extra[_SECOND_WEIGHT] * loss(logits, batch.extra[_SECOND])
    return losses.mean()
