"""Replace the batch norms of an existing model by compound batch norms without changing what it computes."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.nn.compound_batch_norm import (
    CompoundBatchNorm,
    CompoundBatchNorm1d,
    CompoundBatchNorm2d,
    CompoundBatchNorm3d,
)

_logger = logging.getLogger(__name__)


class CompoundBatchNormAct2d(CompoundBatchNorm2d):
    """Compound batch normalization followed by dropout and activation: what timm's BatchNormAct2d becomes."""

    def __init__(self, num_features: int, components: int = 4, *, drop: nn.Module, act: nn.Module, **options: Any):
        super().__init__(num_features, components, **options)
        self.drop = drop
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, drop and activate."""
        y: Tensor = self.act(self.drop(super().forward(x)))
        return y


class CompoundBatchNormNd(CompoundBatchNorm):
    """Compound batch normalization of any number of dimensions: what a SyncBatchNorm becomes."""

    _input_dims = (2, 3, 4, 5)


def convert_batch_norm(
    model: nn.Module,
    components: int = 4,
    *,
    select: Callable[[str, nn.Module], bool] | None = None,
    **options: Any,
) -> nn.Module:
    """Replace every batch norm of a model by a compound batch norm with the same function.

    BatchNorm1d, 2d and 3d, SyncBatchNorm, and timm's BatchNormAct2d and SyncBatchNormAct are converted. Each component
    starts with the statistics and the affine parameters of the batch norm, so the output is the same in eval mode and,
    with batch statistics, in training mode. With `component_init="random"` the means are drawn one deviation around the
    old mean and the affine parameters are set such that eval output stays the same. eps, momentum, training mode,
    requires_grad, device, dtype and the fused activation are carried over.

    A ReLU that follows a norm at once may become the norm's own `activation`, which saves passes over memory. torch
    does not tell what follows what, so a module says it of its children: `relu_after = {"norm1": "act1"}`. If both
    are what they should be, an `nn.Identity` takes the place of `act1`.

    Args:
        model: changed in place; if it is itself a batch norm, only the returned module is new.
        components: M.
        select: takes the path and the module of a batch norm and says whether to convert it; all if None.
        options: further arguments of `CompoundBatchNorm2d`, such as statistics="running".

    Returns:
        The model. What was converted is logged, and `model.named_modules()` has it.

    Raises:
        ValueError: if there is nothing to convert, or a batch norm cannot be converted: its path and the reason are
            named, and the model is left as it was.
    """
    for name in ("eps", "momentum", "affine", "affine_init", "activation", "device", "dtype"):
        if name in options:
            raise ValueError(f"{name} is taken from each batch norm, so convert_batch_norm does not take it")
    found = {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, _BatchNorm) and (select is None or select(path, module))
    }
    if not found:
        raise ValueError(f"model must have a batch norm to convert, got none in {type(model).__name__}")
    for path, module in found.items():
        reason = _obstacle(module)
        if reason:
            raise ValueError(f"cannot convert {path or 'the model'} ({type(module).__name__}): {reason}")

    # A module that stands in two places is converted once and stays shared.
    replacements = {module: _convert(module, components, options) for module in dict.fromkeys(found.values())}
    for path, module in found.items():
        if not path:
            return replacements[module]
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, replacements[module])
    _fuse_relus(model, list(found.values()), replacements)
    _logger.info("converted %d batch norms: %s", len(found), ", ".join(found))
    return model


def _fuse_relus(model: nn.Module, found: list[_BatchNorm], replacements: dict[_BatchNorm, CompoundBatchNorm]) -> None:
    """Move the ReLUs that modules declare in `relu_after` into the new norms before them."""
    alone = {new for old, new in replacements.items() if found.count(old) == 1}  # a shared norm has other followers
    for module in model.modules():
        for norm_name, act_name in getattr(module, "relu_after", {}).items():
            norm, act = module.get_submodule(norm_name), module.get_submodule(act_name)
            if isinstance(norm, CompoundBatchNorm) and norm in alone and _is_plain_relu(act):
                norm.activation = "relu"
                setattr(module, act_name, nn.Identity())


def _is_plain_relu(module: nn.Module) -> bool:
    return type(module) is nn.ReLU and not _has_hooks(module)


def _has_hooks(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for kind in hooks)


def _is_timm_act(module: nn.Module) -> bool:
    """Whether a module is timm's batch norm with a fused activation; asked by name, not to import timm."""
    kind = type(module)
    return kind.__module__ == "timm.layers.norm_act" and kind.__name__ in (
        "BatchNormAct2d",
        "SyncBatchNormAct",
    )


def _obstacle(module: _BatchNorm) -> str | None:
    """Why a batch norm cannot be converted, or None."""
    plain = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return "it is lazy and has no shape yet; run one batch through the model first"
    if type(module) not in plain and not _is_timm_act(module):
        return "it is a subclass whose behaviour is not known here; exclude it with select"
    if module.running_mean is None or module.running_var is None:
        return "it tracks no running statistics, which the mixture needs"
    if _has_hooks(module):
        return "it has hooks, which would be lost; remove them before and put them back after"
    return None


def _convert(old: _BatchNorm, components: int, options: dict[str, Any]) -> CompoundBatchNorm:
    """The compound batch norm that computes what `old` does."""
    # _obstacle has let pass only what has these.
    assert isinstance(old.running_mean, Tensor)
    assert isinstance(old.running_var, Tensor)
    arguments = {
        **options,
        "eps": old.eps,
        "momentum": old.momentum,
        "affine": old.affine,
        "device": old.running_mean.device,
        "dtype": old.running_mean.dtype,
    }
    if isinstance(old, nn.SyncBatchNorm):
        arguments.setdefault("process_group", old.process_group)
    new: CompoundBatchNorm
    if _is_timm_act(old):
        inner = {"drop": old.get_submodule("drop"), "act": old.get_submodule("act")}
        if type(inner["drop"]) is nn.Identity and _is_plain_relu(inner["act"]):
            inner["act"] = nn.Identity()
            arguments["activation"] = "relu"
        new = CompoundBatchNormAct2d(old.num_features, components, **inner, **arguments)
    elif isinstance(old, nn.BatchNorm1d):
        new = CompoundBatchNorm1d(old.num_features, components, **arguments)
    elif isinstance(old, nn.BatchNorm2d):
        new = CompoundBatchNorm2d(old.num_features, components, **arguments)
    elif isinstance(old, nn.BatchNorm3d):
        new = CompoundBatchNorm3d(old.num_features, components, **arguments)
    else:
        new = CompoundBatchNormNd(old.num_features, components, **arguments)
    with torch.no_grad():
        deviation = (old.running_var + old.eps).sqrt()
        spread = new.running_mean.clone()  # zero, or drawn from N(0, 1)
        new.running_mean.copy_(old.running_mean + deviation * spread)
        new.running_var.copy_(old.running_var)
        if new.weight is not None and new.bias is not None:
            # γ (x - μ - σδ)/σ + (β + γδ) = γ (x - μ)/σ + β: each component alone computes what `old` does.
            new.weight.copy_(old.weight)
            new.bias.copy_(old.bias + old.weight * spread)
            new.weight.requires_grad_(old.weight.requires_grad)
            new.bias.requires_grad_(old.bias.requires_grad)
        elif spread.any():
            raise ValueError("component_init='random' needs affine parameters to keep the function")
    return new.train(old.training)
