"""The norm layers of a method's model: which to convert, and what becomes of them while the rest is fixed."""

import copy
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.nn import CompoundBatchNorm, Reading, convert_batch_norm

StatisticsLayer = CompoundBatchNorm | _BatchNorm
NormPolicy = Literal["frozen", "shifted", "reestimated"]


class FixedPart:
    """A model whose last layer alone learns, and the statistics of its batch norms, plain or compound.

    - "frozen": the running statistics normalise, and stay bit for bit. The features of an image are constants.
    - "shifted": batches normalise as in training, and the running statistics go on with the layers' momentum (shifted
      batch norm, Zhong et al., CVPR 2021).
    - "reestimated": batches normalise as in training, and the running statistics become the plain average over the
      batches since `begin`. Those before are forgotten with the first batch; a mixture's serve for its
      responsibilities until then.

    Args:
        model: all of it.
        classifier: the part of it that learns.
        policy: "frozen", "shifted" or "reestimated".
    """

    def __init__(self, model: nn.Module, classifier: nn.Module, policy: NormPolicy) -> None:
        if policy not in get_args(NormPolicy):
            raise ValueError(f"norm_policy must be 'frozen', 'shifted' or 'reestimated', got {policy!r}")
        learning = set(classifier.modules())
        self.policy: NormPolicy = policy
        self.modules = [module for module in model.modules() if module not in learning]
        self.norms = [module for module in self.modules if isinstance(module, StatisticsLayer)]
        self.momenta = [norm.momentum for norm in self.norms]

    def begin(self) -> None:
        """Forget the statistics so far, if they are to be estimated anew."""
        for norm in self.norms if self.policy == "reestimated" else ():
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.zero_()

    def set_momenta(self, *, fixed: bool) -> None:
        """Those of the policy while the part is fixed, otherwise the layers' own."""
        for norm, momentum in zip(self.norms, self.momenta, strict=True):
            norm.momentum = None if fixed and self.policy == "reestimated" else momentum

    def set_mode(self) -> None:
        """Training mode for batch norms whose statistics move, eval for all others, dropout among them."""
        for module in self.modules:
            module.training = self.policy != "frozen" and isinstance(module, StatisticsLayer)

    def release(self, mode: bool) -> None:
        """Back to the mode of the rest, once the part is fixed no longer."""
        for module in self.modules:
            module.training = mode


def reset_layer(layer: nn.Module, seed: int) -> None:
    """Start a layer anew, in place, since the optimiser knows its parameters; the same on any device and rank."""
    fresh = copy.deepcopy(layer).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for module in fresh.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    layer.load_state_dict(fresh.state_dict())


def has_trained_norms(model: nn.Module) -> bool:
    """Whether a batch norm of the model has other statistics than a new one, which has mean 0 and variance 1."""
    return any(
        bool((norm.running_mean != 0).any() or (norm.running_var != 1).any())
        for norm in model.modules()
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None and norm.running_var is not None
    )


def convert_norms(
    model: nn.Module, components: int, *, layers: Sequence[str] | None, reading: str | Reading
) -> nn.Module:
    """`convert_batch_norm` for the batch norms at or under the paths `layers`.

    Args:
        model: changed in place.
        components: M.
        layers: paths of modules; None for all. Each must have a batch norm.
        reading: that of the layers.
    """
    paths = [path for path, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for layer in layers or ():
        if not any(_is_under(path, layer) for path in paths):
            raise ValueError(
                f"layers must be paths of modules with batch norms, got {layer!r}; the model has {', '.join(paths)}"
            )

    def chosen(path: str, _: nn.Module) -> bool:
        return layers is None or any(_is_under(path, layer) for layer in layers)

    return convert_batch_norm(model, components, select=chosen, reading=reading)


def _is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")
