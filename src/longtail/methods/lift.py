"""LIFT: a frozen vision transformer learns through small adapters and a cosine classifier that starts at class means.

    h   = MLP(u) + s · (W_up GELU(W_down u + b_down) + b_up)         AdaptFormer, in each block
    qkv = W u + b + s · (W_up (W_down u + b_down) + b_up)            LoRA-like, instead
    z_k = scale · cos(features, w_k)                                 w_k starts at the mean features of class k
    L   = loss(z, y)                                                 logit adjustment

with the normalised tokens u that a block gives to its MLP or its attention, and learnable W_up, b_up, W_down, b_down,
s and w. All else is frozen. W_up and b_up start at zero, so at first the network computes the features that it did.
Take it for a pretrained transformer on few images: training all weights costs rare classes their accuracy, the paper
finds. On random weights it learns next to nothing: on the digits, 13.6 ± 2.5 points less than cross-entropy.

The width of an adapter is 2^⌊log₂(K / 2L)⌋, at least 1, for K classes and L blocks, so that all adapters together
are smaller than the classifier. The paper starts CLIP's classifier from texts and averages five crops at test time;
both are left out. Its adapter has a layer norm of its own; ours takes what the block's norm gives, as AdaptFormer
does. Both have ReLU; GELU is never without a gradient, as a single ReLU, the default below 48 classes, often is.

References: Shi et al., "Long-Tail Learning with Foundation Model: Heavy Fine-Tuning Hurts", ICML 2024, its code for
the width; Chen et al., "AdaptFormer", NeurIPS 2022; Hu et al., "LoRA", ICLR 2022.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods._classifiers import check_logits
from longtail.methods._losses import build_loss, loss_arguments
from longtail.methods.base import METHODS, EpochData, HeadedModel, Method, MethodOutput, check_headed, sum_parts
from longtail.nn.cosine_classifier import CosineClassifier

AdapterKind = Literal["adaptformer", "lora"]


class Adapted(nn.Module):
    """A frozen layer with an adapter beside it: layer(u) + s · up(act(down(u))), which starts as the layer itself.

    Args:
        layer: from width to out_width.
        width: of the input.
        out_width: of the output.
        bottleneck: between the two projections.
        act: between them too; `nn.Identity()` for LoRA.
    """

    def __init__(self, layer: nn.Module, width: int, out_width: int, bottleneck: int, act: nn.Module) -> None:
        super().__init__()
        like = next(layer.parameters())
        self.layer, self.act = layer, act
        self.down = nn.Linear(width, bottleneck, device=like.device, dtype=like.dtype)
        self.up = nn.Linear(bottleneck, out_width, device=like.device, dtype=like.dtype)
        self.scale = nn.Parameter(torch.ones((), device=like.device, dtype=like.dtype))
        nn.init.kaiming_uniform_(self.down.weight, nonlinearity="linear")
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """(..., width) to (..., out_width)."""
        out: Tensor = self.layer(tokens) + self.scale * self.up(self.act(self.down(tokens)))
        return out


@METHODS.register("lift")
class LIFT(Method):
    """Adapters in a frozen transformer; see the module's docstring.

    Args:
        model: a vision transformer of timm's, with `blocks`; changed in place.
        class_counts: training images of each class.
        adapter: "adaptformer" beside the MLP of each block, or "lora" beside the layer for queries, keys and values.
        bottleneck: the width of an adapter; the docstring of the module has the default.
        scale: of the cosine classifier.
        class_means: whether the classifier starts at the class means; at random directions if not.
        loss: a name in `LOSSES`.
        loss_settings: keyword arguments of that loss.
        view: a name in `VIEWS`; the paper crops and flips.
        sampler: a name in `SAMPLERS`.

    Attributes:
        started: whether the classifier has its start, a buffer: a resumed training does not start it again.

    Example:
        >>> from longtail.models import create_model
        >>> method = LIFT(create_model("vit_tiny_patch16_224", 3, image_size=32), [500, 50, 5])
        >>> method.bottleneck, sum(parameter.numel() for parameter in method.parameters() if parameter.requires_grad)
        (1, 7512)
    """

    started: Tensor
    departures = (
        "adapters share the norms of the blocks, and have GELU for ReLU",
        "no classifier from texts and no average over crops",
    )

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        adapter: AdapterKind = "adaptformer",
        bottleneck: int | None = None,
        scale: float = 25.0,
        class_means: bool = True,
        loss: str = "logit_adjustment",
        loss_settings: Mapping[str, Any] | None = None,
        view: str = "weak",
        sampler: str = "instance",
    ) -> None:
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        blocks = _blocks_of(model, adapter)
        check_headed(model, "to get a cosine classifier")
        if bottleneck is None:
            bottleneck = 2 ** max(0, math.floor(math.log2(len(self.class_counts) / (2 * len(blocks)))))
        if bottleneck < 1:
            raise ValueError(f"bottleneck must be at least 1, got {bottleneck}")
        self.adapter, self.bottleneck, self.scale, self.class_means = adapter, bottleneck, scale, class_means
        self.loss, self.view, self.sampler = loss, view, sampler
        self.criterion = build_loss(loss, self.class_counts, loss_settings)
        check_logits(self.criterion, loss)
        self.loss_settings = loss_arguments(self.criterion)
        self.register_buffer("started", torch.tensor(not class_means))
        model.requires_grad_(False)
        for block in blocks:
            _adapt(block, adapter, bottleneck)
        _set_cosine_classifier(model, len(self.class_counts), scale)

    @torch.no_grad()
    def start_epoch(self, data: EpochData) -> None:
        """Before the first epoch, put the mean features of each class into the classifier."""
        if self.started:
            return
        weight = cast("CosineClassifier", cast("HeadedModel", self.model).get_classifier()).weight
        sums, counts = torch.zeros_like(weight), weight.new_zeros(len(weight))
        mode = self.model.training
        self.model.eval()
        for batch in data.batches():
            sums.index_add_(0, batch.target, self.features(batch.views[0]).to(sums))
            counts += torch.bincount(batch.target, minlength=len(counts))
        self.model.train(mode)
        sums, counts = data.sum_over_ranks(sums), data.sum_over_ranks(counts)
        weight.copy_(torch.where(counts[:, None] > 0, F.normalize(sums), weight))  # a sum has the mean's direction
        self.started.fill_(True)

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        return sum_parts(logits, {"classification": self.criterion(logits, batch.target)})

    def set_progress(self, progress: float) -> None:
        """Hand the position to the loss, which may have a schedule."""
        super().set_progress(progress)
        self.criterion.set_progress(progress)


def _blocks_of(model: nn.Module, adapter: AdapterKind) -> list[nn.Module]:
    """The transformer blocks of `model`, once they are known to take the adapter."""
    if adapter not in ("adaptformer", "lora"):
        raise ValueError(f"adapter must be 'adaptformer' or 'lora', got {adapter!r}")
    blocks = list(cast("Iterable[nn.Module]", getattr(model, "blocks", ())))
    norms = [getattr(getattr(block, "norm2", None), "weight", None) for block in blocks]
    if not all(isinstance(norm, Tensor) for norm in norms or [None]) or not all(hasattr(b, "mlp") for b in blocks):
        raise ValueError(
            f"model must be a vision transformer with blocks that have an MLP, got {type(model).__name__} (take "
            "vit_tiny_patch16_224 or deit_tiny_patch16_224; for convolutional networks the method 'erm')"
        )
    # BEiT reads the weight of its projection, past any layer around it.
    if adapter == "lora" and not all(
        isinstance(getattr(attn := getattr(block, "attn", None), "qkv", None), nn.Linear)
        and not hasattr(attn, "q_bias")
        for block in blocks
    ):
        raise ValueError(
            f"adapter must be 'adaptformer' for {type(model).__name__}, got 'lora': "
            "its attention has no single layer for queries, keys and values"
        )
    return blocks


def _adapt(block: nn.Module, adapter: AdapterKind, bottleneck: int) -> None:
    if adapter == "adaptformer":
        width = cast("Tensor", block.get_submodule("norm2").weight).numel()
        block.mlp = Adapted(block.get_submodule("mlp"), width, width, bottleneck, nn.GELU())
    else:
        qkv = cast("nn.Linear", block.get_submodule("attn.qkv"))
        block.get_submodule("attn").qkv = Adapted(qkv, qkv.in_features, qkv.out_features, bottleneck, nn.Identity())


def _set_cosine_classifier(model: nn.Module, num_classes: int, scale: float) -> None:
    old = cast("nn.Linear", cast("HeadedModel", model).get_classifier())
    path = next(name for name, module in model.named_modules() if module is old)
    parent, _, name = path.rpartition(".")
    new = CosineClassifier(old.in_features, num_classes, scale=scale, device=old.weight.device, dtype=old.weight.dtype)
    setattr(model.get_submodule(parent), name, new)
