"""Fine-tuning of a pretrained network, gently: the default after a head was fitted on frozen features.

    L = logit_adjustment_loss_ε(z, y),    lr of layer group l of L = lr · d^{L − l}

with logits z, strength τ, label smoothing ε, and a learning rate that falls by d with each group from
the classifier to the stem. The statistics of batch norms stay those of the pretrained network ("frozen"), or follow the
new images ("shifted"): with small batches and few images, batch statistics destroy more than they adapt.

References: Menon et al., ICLR 2021 (logit adjustment); Howard and Ruder, ACL 2018 (learning rates by layer).
"""

from collections.abc import Sequence
from typing import Any, Literal, Self

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from longtail.data.views import Batch
from longtail.losses import logit_adjustment_loss
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts
from longtail.models.layer_groups import layer_groups


@METHODS.register("fine_tune")
class FineTune(Method):
    """See the module's docstring.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        strength: τ.
        label_smoothing: ε.
        layer_decay: d, from 0 (the classifier alone) to 1.
        norms: "frozen" or "shifted".
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> method = FineTune(create_model("resnet8", 3), [500, 50, 5])
        >>> [group["lr_scale"] for group in method.parameter_groups()][-2:]
        [0.75, 1.0]
    """

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        strength: float = 1.0,
        label_smoothing: float = 0.1,
        layer_decay: float = 0.75,
        norms: Literal["frozen", "shifted"] = "frozen",
        view: str = "weak",
        sampler: str = "instance",
    ) -> None:
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        if not 0 <= layer_decay <= 1:
            raise ValueError(f"layer_decay must be from 0 to 1, got {layer_decay}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and less than 1, got {label_smoothing}")
        if norms not in ("frozen", "shifted"):
            raise ValueError(f"norms must be 'frozen' or 'shifted', got {norms!r}")
        self.strength, self.label_smoothing, self.layer_decay, self.norms = (
            strength,
            label_smoothing,
            layer_decay,
            norms,
        )
        self.view, self.sampler = view, sampler

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        logits = self.model(images)
        loss = logit_adjustment_loss(
            logits,
            batch.target,
            class_counts=self.class_counts,
            strength=self.strength,
            label_smoothing=self.label_smoothing,
        )
        return sum_parts(logits, {"classification": loss})

    def train(self, mode: bool = True) -> Self:
        """Set the mode, as in torch; batch norms with frozen statistics stay in eval."""
        super().train(mode)
        if mode and self.norms == "frozen":
            for module in self.model.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def parameter_groups(self) -> list[dict[str, Any]]:
        """A group for each layer that the network is made of, from stem to classifier."""
        groups = layer_groups(self.model)
        layers = [[parameter for parameter in group if parameter.requires_grad] for group in groups]
        scales = [self.layer_decay ** (len(layers) - 1 - number) for number in range(len(layers))]
        return [{"params": layer, "lr_scale": scale} for layer, scale in zip(layers, scales, strict=True)]
