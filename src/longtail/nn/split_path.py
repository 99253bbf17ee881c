"""The class-split path: class groups, and the context in which a model normalises by them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from longtail.nn.compound_batch_norm import CompoundBatchNorm
from longtail.nn.readings import GroupScheme


def class_groups(num_classes: int, components: int, scheme: GroupScheme = "interleaved") -> Tensor:
    """Cut the classes into as many groups as there are components, as equal as can be.

    Args:
        num_classes: K.
        components: M; with fewer classes than components, the last components get no class.
        scheme: "interleaved" deals the classes out in turn; "contiguous" cuts their indices into runs ("according to
            their serial numbers", the paper says), which in a long-tailed benchmark puts the rarest ones together.

    Returns:
        The group of each class, (K,), int64.

    Example:
        >>> class_groups(10, 4)
        tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
        >>> class_groups(10, 4, "contiguous")
        tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    """
    for name, value in (("num_classes", num_classes), ("components", components)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if scheme == "contiguous":
        return torch.arange(num_classes) * min(components, num_classes) // num_classes
    if scheme == "interleaved":
        return torch.arange(num_classes) % components
    raise ValueError(f"scheme must be 'contiguous' or 'interleaved', got {scheme!r}")


@contextmanager
def split_path(model: nn.Module, groups: Tensor) -> Iterator[None]:
    """Within this context, a model in training mode normalises each sample by the component of its group.

    The state lives in the layers of this model, so two models do not disturb each other, and leaving the context, by an
    exception too, restores what was there before: contexts nest. In eval mode the compound path is taken all the same.
    Activation checkpointing recomputes the forward pass during the backward pass; keep both within the context then.

    Args:
        model: a model with compound batch norm layers.
        groups: the group of each sample of the batch, integers 0 ... M-1, (B,); usually
            `class_groups(num_classes, components)[target]`.

    Example:
        >>> from longtail.nn import CompoundBatchNorm2d
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), CompoundBatchNorm2d(8, components=2))
        >>> with split_path(model, torch.tensor([0, 1, 1, 0])):
        ...     y = model(torch.randn(4, 3, 8, 8))
    """
    layers = [module for module in model.modules() if isinstance(module, CompoundBatchNorm)]
    if not layers:
        raise ValueError("model must have compound batch norm layers, got none; see convert_batch_norm")
    _check_groups(groups, components=min(layer.components for layer in layers))
    before = [layer._groups for layer in layers]
    for layer in layers:
        layer._groups = groups.to(layer.running_mean.device)
    try:
        yield
    finally:
        for layer, previous in zip(layers, before, strict=True):
            layer._groups = previous


def _check_groups(groups: Tensor, components: int) -> None:
    if groups.dim() != 1 or groups.is_floating_point() or groups.dtype == torch.bool:
        raise ValueError(f"groups must be a 1-D tensor of integers, got {groups.dtype} of shape {tuple(groups.shape)}")
    outside = (groups < 0) | (groups >= components)
    if groups.device.type != "cpu":
        torch._assert_async(~outside.any())  # a test here would wait for the device at each step
    elif outside.any():
        raise ValueError(f"groups must be 0 to {components - 1}, got {groups[outside][0].item()}")
