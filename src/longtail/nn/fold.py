"""Turn compound batch norms that compute what a batch norm computes back into batch norms, for inference.

    y_i = Σ_j w_ij (A_j x_i + B_j) = A x_i + B

- wherever all A_j = A and all B_j = B, since Σ_j w_ij = 1: models that were converted and never trained, and layers
  that were frozen;
- wherever all components have the same mean and variance, for then w_ij = τ_j, and A = Σ_j τ_j A_j, B = Σ_j τ_j B_j:
  layers whose components never separated, which may have learnt different affine sets on the split path.

There a plain batch norm is the same function at less cost, which torch's own tools can go on to fold into the
convolution before it (`torch.fx.experimental.optimization.fuse`).
"""

import logging

import torch
from torch import Tensor, nn

from longtail.nn.compound_batch_norm import CompoundBatchNorm, CompoundBatchNorm1d, CompoundBatchNorm3d
from longtail.nn.convert import CompoundBatchNormAct2d, CompoundBatchNormNd

_logger = logging.getLogger(__name__)

# What two components may differ in and still be one: the rounding of float32, twice.
_TOLERANCE = 2.4e-7


def fold_batch_norm(model: nn.Module) -> nn.Module:
    """Replace each compound batch norm that computes what a batch norm computes by that batch norm.

    Args:
        model: in eval mode; changed in place. If it is itself a compound batch norm, only the returned module is new.

    Returns:
        The model. How many layers were folded, and of how many, is logged.

    Raises:
        ValueError: if a compound batch norm is in training mode, where the split path would be lost.

    Example:
        >>> from longtail.nn import convert_batch_norm
        >>> model = convert_batch_norm(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))).eval()
        >>> type(fold_batch_norm(model)[1])
        <class 'torch.nn.modules.batchnorm.BatchNorm2d'>
    """
    found = {
        path: module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, CompoundBatchNorm)
    }
    for path, module in found.items():
        if module.training:
            raise ValueError(f"model must be in eval mode to be folded, got {path or 'the model'} in training mode")
    layers = dict.fromkeys(found.values())
    replacements = {module: _fold(module) for module in layers if has_equal_components(module) or _is_one_map(module)}
    for path, module in found.items():
        if module not in replacements:
            continue
        if not path:
            return replacements[module]
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, replacements[module])
    _logger.info("folded %d of %d compound batch norms", len(replacements), len(set(found.values())))
    return model


def has_equal_components(layer: CompoundBatchNorm) -> bool:
    """Whether all components have the same statistics, to the bit: no input is nearer to one than to another."""
    return all(bool((values == values[0]).all()) for values in (layer.running_mean, layer.running_var))


def _is_one_map(module: CompoundBatchNorm) -> bool:
    """Whether all components compute the same A x + B."""
    deviation = (module.running_var.double() + module.eps).sqrt()
    scale = 1 / deviation if module.weight is None else module.weight.double() / deviation
    offset = -scale * module.running_mean.double()
    rounding = offset.abs()
    if module.bias is not None:
        offset = offset + module.bias.double()
        rounding = rounding + module.bias.double().abs()

    def agree(values: Tensor, size: Tensor) -> bool:
        return bool(((values - values[0]).abs() <= _TOLERANCE * size).all())

    return agree(scale, scale.abs()) and agree(offset, torch.maximum(rounding, rounding[0]))


def _fold(module: CompoundBatchNorm) -> nn.Module:
    """The batch norm of the first component, or of the mean affine set where the components never parted."""
    kind: type[nn.modules.batchnorm._BatchNorm] = nn.BatchNorm2d
    if isinstance(module, CompoundBatchNorm1d):
        kind = nn.BatchNorm1d
    elif isinstance(module, CompoundBatchNorm3d):
        kind = nn.BatchNorm3d
    elif isinstance(module, CompoundBatchNormNd):
        kind = nn.SyncBatchNorm
    like = module.running_mean
    new = kind(module.num_features, module.eps, module.momentum, module.affine, device=like.device, dtype=like.dtype)
    state = {name: tensor[0] if tensor.dim() > 1 else tensor for name, tensor in module.state_dict().items()}
    if module.affine and has_equal_components(module):
        share = module.prior.double() / module.prior.double().sum()
        for name in ("weight", "bias"):
            state[name] = (share @ module.get_parameter(name).detach().double()).to(like.dtype)
    new.load_state_dict({name: state[name] for name in new.state_dict()})
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(module.get_parameter(name).requires_grad)
    new.eval()
    behind: list[nn.Module] = [nn.ReLU(inplace=True)] if module.activation == "relu" else []
    if isinstance(module, CompoundBatchNormAct2d):
        behind += [module.drop, module.act]
    return nn.Sequential(new, *behind).eval() if behind else new
