"""SAM for rare classes alone (ImbSAM): the tail's share of the gradient is taken where its loss is worst nearby.

    g = ∇L(w) + s [ ∇L_tail(w + ε) - ∇L_tail(w) ],    ε = radius · ∇L_tail(w) / ‖∇L_tail(w)‖

with the loss L of the batch, L_tail that of its images of tail classes, and s their share of the batch. As L is
(1 - s) L_head + s L_tail, this is (1 - s) ∇L_head(w) + s ∇L_tail(w + ε): frequent classes are learnt by plain steps. It
costs 1 + 2 s passes, where SAM costs 2.

The tail's images go through the network as a batch of their own. Batch norms then normalise them by their own moments,
in both of the gradients that are compared, and leave their running statistics alone. A rank that has fewer than two of
them adds nothing: one image alone has no variance.

Reference: Zhou et al., "ImbSAM: A Closer Look at Sharpness-Aware Minimization in Class-Imbalanced Recognition", ICCV
2023, section 3.3. There one forward pass serves both losses; ours needs no loss of each image, so any method that can
be cut into micro-batches takes it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from longtail.class_counts import ClassCounts
from longtail.data.views import Batch
from longtail.nn import frozen_statistics
from longtail.training.optimizer import ascended
from longtail.training.ranks import Ranks


def tail_classes(class_counts: ClassCounts) -> Tensor:
    """Whether each class is of the tail, bool (K,): one of `medium` or `few`.

    Where that is none or all of them, the tail is the rarer half of the classes.

    Example:
        >>> tail_classes(ClassCounts([500, 50, 5])).tolist(), tail_classes(ClassCounts([500, 400, 300])).tolist()
        ([False, True, True], [False, False, True])
    """
    many = class_counts.groups().get("many", [])
    if not 0 < len(many) < len(class_counts):
        order = sorted(range(len(class_counts)), key=lambda k: -class_counts[k])
        many = order[: (len(order) + 1) // 2]
    tail = torch.ones(len(class_counts), dtype=torch.bool)
    tail[many] = False
    return tail


def ascend_on_tail(
    optimizer: Optimizer,
    model: nn.Module,
    batch: Batch,
    *,
    tail: Tensor,
    radius: float,
    backward: Callable[[Batch, float], object],
    ranks: Ranks,
) -> None:
    """Turn the gradient of a batch, which the weights hold, into that of the module's docstring.

    Args:
        optimizer: of the weights.
        model: its batch norms leave their statistics alone meanwhile.
        batch: this rank's.
        tail: of `tail_classes`.
        radius: of the ascent.
        backward: adds the gradient of a batch, times a factor, to the weights; not summed over the ranks.
        ranks: those that share the batch.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    gradients = [p.grad for p in parameters]
    chosen = tail.to(batch.target.device)[batch.target]
    images = int(chosen.sum())

    def of_tail() -> list[Tensor]:
        optimizer.zero_grad()
        if images >= 2:
            backward(select_images(batch, chosen), images / len(chosen))
        elif ranks.size > 1:  # DDP may talk to the other ranks in a forward pass, so all have one
            backward(select_images(batch, torch.arange(len(chosen), device=chosen.device) < 2), 0.0)
        for p in parameters:
            p.grad = ranks.sum(torch.zeros_like(p) if p.grad is None else p.grad) / ranks.size
        return [p.grad for p in parameters if p.grad is not None]

    with frozen_statistics(model):
        before = of_tail()
        with ascended(optimizer, radius):
            after = of_tail()
    optimizer.zero_grad()
    for p, gradient, old, new in zip(parameters, gradients, before, after, strict=True):
        p.grad = gradient + new - old


def select_images(batch: Batch, chosen: Tensor) -> Batch:
    """The images of a batch for which `chosen`, bool (n,), is true."""
    return Batch(
        tuple(view[chosen] for view in batch.views),
        batch.target[chosen],
        batch.indices[chosen],
        {name: tensor[chosen] for name, tensor in batch.extra.items()},
    )
