"""Put other norm layers in the place of a model's batch norms, all of them or none."""

import logging
from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_logger = logging.getLogger(__name__)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Select = Callable[[str, nn.Module], bool]


def replace_batch_norms(
    model: nn.Module,
    convert: Callable[[nn.BatchNorm2d], nn.Module],
    *,
    select: Select | None = None,
    obstacle: Callable[[nn.BatchNorm2d], str | None] = lambda _: None,
) -> nn.Module:
    """Replace the batch norms of two dimensions by what `convert` makes of each.

    timm's BatchNormAct2d has dropout and an activation of its own, which stay behind the new layer. Training mode and
    `requires_grad` are the caller's to carry; a module that stands in two places is converted once and stays shared.

    Args:
        model: changed in place; if it is itself a batch norm, only the returned module is new.
        convert: a batch norm to its successor.
        select: takes the path and the module of a batch norm and says whether to convert it; all if None.
        obstacle: why a batch norm cannot be converted, or None; asked after the reasons that hold for all.

    Returns:
        The model.

    Raises:
        ValueError: there is nothing to convert, or a batch norm cannot be converted: its path and the reason are named,
            and the model is left as it was.
    """
    found = {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, _BatchNorm) and (select is None or select(path, module))
    }
    if not found:
        raise ValueError(f"model must have a batch norm to convert, got none in {type(model).__name__}")
    replacements: dict[_BatchNorm, nn.Module] = {}
    for path, module in found.items():
        reason = _obstacle(module)
        if reason is None and isinstance(module, nn.BatchNorm2d):
            reason = obstacle(module)
            if reason is None and module not in replacements:
                replacements[module] = _with_activation(module, convert(module))
        if reason is not None:
            raise ValueError(f"cannot convert {path or 'the model'} ({type(module).__name__}): {reason}")
    for path, module in found.items():
        if not path:
            return replacements[module]
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, replacements[module])
    _logger.info("converted %d batch norms: %s", len(found), ", ".join(found))
    return model


def _is_timm_act(module: nn.Module) -> bool:
    """Whether a module is timm's batch norm with a fused activation; asked by name, not to import timm."""
    return type(module).__module__ == "timm.layers.norm_act" and type(module).__name__ == "BatchNormAct2d"


def _obstacle(module: _BatchNorm) -> str | None:
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return "it is lazy and has no shape yet; run one batch through the model first"
    if type(module) is not nn.BatchNorm2d and not _is_timm_act(module):
        return "only BatchNorm2d and timm's BatchNormAct2d are known here; exclude it with select"
    if module.running_mean is None or module.running_var is None:
        return "it tracks no running statistics, by which it would normalise at inference"
    if any(getattr(module, kind) for kind in _HOOKS):
        return "it has hooks, which would be lost; remove them before and put them back after"
    return None


def _with_activation(old: nn.BatchNorm2d, new: nn.Module) -> nn.Module:
    if not _is_timm_act(old):
        return new
    return nn.Sequential(new, old.get_submodule("drop"), old.get_submodule("act")).train(old.training)
