"""What goes into one call of the layer beside its input, for the eager path and the kernels alike."""

from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor


class Options(NamedTuple):
    """What is fixed for one call; see `compound_batch_norm` for their meaning."""

    training: bool
    batch_statistics: bool
    eps: float
    temperature: float
    detach_responsibilities: bool
    min_mass: float
    synchronize: bool
    process_group: dist.ProcessGroup | None
    relu: bool = False  # whether the output goes through ReLU


class Mixture(NamedTuple):
    """The statistics and the affine parameters."""

    prior: Tensor  # τ, (M,)
    mean: Tensor  # μ, (M, C)
    var: Tensor  # σ², (M, C)
    weight: Tensor | None  # γ, (M, C)
    bias: Tensor | None  # β, (M, C)
