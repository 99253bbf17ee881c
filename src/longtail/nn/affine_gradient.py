"""Gradients of the M affine sets as large as batch norm's of its one.

Each point reaches the M sets by its responsibilities, which sum to one. So a set gets a share of the gradient, 1/M of
it while the components are equal, and the sum over the sets that a point is scaled by learns M times slower than
batch norm's γ and β, while weight decay pulls at each set with its whole strength. That counts with SGD; optimisers
that normalise the gradient, as Adam does, take no notice of the factor.
"""

from functools import partial

import torch
from torch import nn

from longtail.nn.compound_batch_norm import CompoundBatchNorm


def scale_affine_gradients(model: nn.Module) -> None:
    """From now on, multiply the gradient of each compound norm's γ and β by its number of components.

    It is done by hooks on the parameters, for good. A copy of the model does not have them.

    Args:
        model: any model; without a compound norm that learns there is nothing to scale.

    Example:
        >>> import torch
        >>> from longtail.nn import CompoundBatchNorm1d
        >>> norm, plain = CompoundBatchNorm1d(3, components=4), torch.nn.BatchNorm1d(3)
        >>> scale_affine_gradients(norm)
        >>> x = torch.randn(32, 3)
        >>> for layer in (norm, plain):
        ...     layer(x).exp().sum().backward()
        >>> torch.allclose(norm.weight.grad.mean(0), plain.weight.grad, rtol=1e-3, atol=1e-3)
        True
    """
    for module in model.modules():
        if isinstance(module, CompoundBatchNorm) and module.components > 1:
            for parameter in (module.weight, module.bias):
                if parameter is not None and parameter.requires_grad:
                    parameter.register_hook(partial(torch.mul, other=module.components))
