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
from longtail.nn.readings import Reading, find_reading

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
    reading: str | Reading = "measured",
    synchronize: bool = True,
) -> nn.Module:
    """Replace every batch norm of a model by a compound batch norm with the same function.

    BatchNorm1d, 2d and 3d, SyncBatchNorm, and timm's BatchNormAct2d and SyncBatchNormAct are converted. The output in
    eval mode stays the same, whatever the reading. Components that start equal have the statistics and the affine
    parameters of the batch norm. Those that start at random have means one deviation around the old one, and affine
    parameters with which each component alone computes what the batch norm did. eps, training mode, requires_grad,
    device, dtype and the fused activation are carried over, and the momentum too unless the reading has its own.

    A ReLU that follows a norm at once may become the norm's own `activation`, which saves passes over memory. torch
    does not tell what follows what, so a module says it of its children: `relu_after = {"norm1": "act1"}`. If both
    are what they should be, an `nn.Identity` takes the place of `act1`.

    Args:
        model: changed in place; if it is itself a batch norm, only the returned module is new.
        components: M.
        select: takes the path and the module of a batch norm and says whether to convert it; all if None.
        reading: see `CompoundBatchNorm2d`.
        synchronize: see `CompoundBatchNorm2d`.

    Returns:
        The model. What was converted is logged, and `model.named_modules()` has it.

    Raises:
        ValueError: if there is nothing to convert, or a batch norm cannot be converted: its path and the reason are
            named, and the model is left as it was.
    """
    reading = find_reading(reading)
    random = reading.component_init == "random" and components > 1
    found = {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, _BatchNorm) and (select is None or select(path, module))
    }
    if not found:
        raise ValueError(
            f"model must have a batch norm to convert, got none in {type(model).__name__} (take a network with batch "
            "norms, such as resnet18; for vision transformers there is the method lift)"
        )
    for path, module in found.items():
        reason = _obstacle(module, random=random)
        if reason:
            raise ValueError(f"cannot convert {path or 'the model'} ({type(module).__name__}): {reason}")

    # A module that stands in two places is converted once and stays shared.
    replacements = {
        module: _convert(module, components, reading, synchronize) for module in dict.fromkeys(found.values())
    }
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


def _obstacle(module: _BatchNorm, *, random: bool) -> str | None:
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
    if random and not module.affine:
        return (
            "it has no affine parameters, without which components that start at random change what it computes; "
            "use a reading with component_init='equal', or exclude it with select"
        )
    return None


def _convert(old: _BatchNorm, components: int, reading: Reading, synchronize: bool) -> CompoundBatchNorm:
    """The compound batch norm that computes what `old` does."""
    # _obstacle has let pass only what has these.
    assert isinstance(old.running_mean, Tensor)
    assert isinstance(old.running_var, Tensor)
    arguments: dict[str, Any] = {
        "reading": reading,
        "synchronize": synchronize,
        "eps": old.eps,
        "momentum": old.momentum if reading.momentum is None else reading.momentum,
        "affine": old.affine,
        "device": old.running_mean.device,
        "dtype": old.running_mean.dtype,
    }
    if isinstance(old, nn.SyncBatchNorm):
        arguments["process_group"] = old.process_group
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
    return new.train(old.training)
