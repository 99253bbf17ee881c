"""DiVE: a balanced teacher's flattened answers are labels, and so are virtual examples of the rare classes.

With the logits z of the network and t of a teacher, a finished run by balanced softmax,

    L = (1 - α) BSCE(z, y) + α T² KL( q ‖ softmax(z / T) ),    q_k ∝ softmax(t / T)_k^ρ

- BSCE is `balanced_softmax_loss` with the label y.
- q_k is how much of an image counts as an example of class k. Summed over the training set, q is less long-tailed than
  the labels, the more so the larger the temperature T and the smaller the power ρ. Powers of a softmax are one of
  scaled logits: q = softmax(ρ t / T).
- α = `distillation_weight`. With α = 0 this is balanced softmax, whatever the teacher says.

The paper chooses T so that the virtual distribution is flat enough; ours is a setting. The teacher sees the same view
of an image as the network does. A step costs the forward pass of the teacher on top of that of `erm`.

Reference: He, Wu and Wei, "Distilling Virtual Examples for Long-tailed Recognition", ICCV 2021, equations 3 to 6. The
defaults of α, T and ρ are those of its authors' later collection of code, the same for CIFAR-10-LT and CIFAR-100-LT.
"""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.losses import balanced_softmax_loss
from longtail.methods._teacher import Teacher
from longtail.methods.base import METHODS, Method, MethodOutput, sum_parts


def virtual_examples(teacher_logits: Tensor, *, temperature: float = 2.0, power: float = 0.5) -> Tensor:
    """q_k ∝ softmax(t / T)_k^ρ, (B, K); rows sum to 1.

    Args:
        teacher_logits: t, (B, K).
        temperature: T.
        power: ρ.

    Example:
        >>> import torch
        >>> virtual_examples(torch.tensor([[4.0, 0.0]]), temperature=1.0, power=0.0)
        tensor([[0.5000, 0.5000]])
    """
    return F.softmax(power * teacher_logits / temperature, dim=1)


@METHODS.register("dive")
class DiVE(Method):
    """Balanced softmax and a teacher's virtual examples; see the module's docstring.

    Args:
        model: from images to logits; trained in place.
        class_counts: training images of each class.
        teacher: a finished run on the same data, best one by balanced softmax.
        distillation_weight: α, from 0 to 1.
        temperature: T, positive.
        power: ρ, positive; 1 leaves the teacher's answers as they are.
        view: a name in `VIEWS`.
        sampler: a name in `SAMPLERS`.

    Example:
        >>> from longtail.models import create_model
        >>> teacher = create_model("resnet8", 3).eval().requires_grad_(False)
        >>> method = DiVE(create_model("resnet8", 3), [500, 50, 5], teacher=teacher)
    """

    needs = ("teacher",)
    passes = 1.33
    departures = ("the temperature is a setting, not searched for",)

    def __init__(
        self,
        model: nn.Module,
        class_counts: Sequence[int],
        *,
        teacher: nn.Module | None = None,
        distillation_weight: float = 0.5,
        temperature: float = 2.0,
        power: float = 0.5,
        view: str = "strong",
        sampler: str = "instance",
    ) -> None:
        if not 0 <= distillation_weight <= 1:
            raise ValueError(f"distillation_weight must be from 0 to 1, got {distillation_weight}")
        for name, value in (("temperature", temperature), ("power", power)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        super().__init__(model, class_counts, views=(view,), samplers=(sampler,))
        self.teacher = Teacher(teacher, len(self.class_counts), "dive")
        self.distillation_weight, self.temperature, self.power = distillation_weight, temperature, power
        self.view, self.sampler = view, sampler

    def forward(self, *batches: Batch) -> MethodOutput:
        """The loss of one batch."""
        (batch,) = batches
        (images,) = self.views_of(batch)
        virtual = virtual_examples(self.teacher(images), temperature=self.temperature, power=self.power)
        logits = self.model(images)
        student = F.log_softmax(logits.float() / self.temperature, dim=1)
        divergence = self.temperature**2 * F.kl_div(student, virtual, reduction="batchmean")
        labelled = balanced_softmax_loss(logits, batch.target, class_counts=self.class_counts)
        weight = self.distillation_weight
        return sum_parts(logits, {"classification": (1 - weight) * labelled, "distillation": weight * divergence})
