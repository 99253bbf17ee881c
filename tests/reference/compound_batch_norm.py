"""Compound and split batch normalization and dual-path learning from the paper's LaTeX alone: slow, literal, no import
of ours. Equation and algorithm numbers are the paper's; λ weighs the old statistics.

Where the LaTeX leaves no choice but to choose: ε is added to Σ (the text after eq. 5 names it and no equation has it),
and a component without any mass, whose mean would be 0/0, keeps its mean and variance.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Order = Literal["appendix", "text"]


def density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Equation 9, with (2π)^D; its factor cancels in equation 8. Logarithm, since D-dimensional densities underflow."""
    total = torch.zeros_like(x[0])
    for d in range(len(x)):
        total = total + (x[d] - mean[d]) ** 2 / variance[d] + torch.log(2 * math.pi * variance[d])
    return -0.5 * total


class PaperNorm(nn.Module):
    """Algorithm 2, or the order of sections 3.1 and 3.2; with labels set, Algorithm 3 or that order."""

    prior: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(
        self, prior: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor, *, order: Order, lamda: float
    ) -> None:
        super().__init__()
        self.order, self.lamda, self.eps = order, lamda, 1e-5
        self.class_set: Sequence[int] | None = None  # of each image's label; None for the compound path
        for name, value in (("prior", prior), ("mean", mean), ("variance", variance)):
            self.register_buffer(name, value.detach().clone())
        self.gamma, self.beta = nn.Parameter(gamma.detach().clone()), nn.Parameter(beta.detach().clone())

    def forward(self, feature: Tensor) -> Tensor:
        batch, channels, height, width = feature.shape
        x = feature.permute(0, 2, 3, 1).reshape(-1, channels)  # N = BHW points
        if self.class_set is None:
            y = self.compound(x)
        else:
            y = self.split(x, [self.class_set[i // (height * width)] for i in range(len(x))])
        return y.view(batch, height, width, channels).permute(0, 3, 1, 2)

    def compound(self, x: Tensor) -> Tensor:
        components = range(len(self.prior))
        log_f = torch.stack([density(x.T, self.mean[j], self.variance[j] + self.eps) for j in components], 1)
        w = torch.softmax(torch.log(self.prior) + log_f, 1)  # equation 8
        prior, mean, variance = [], [], []  # the updated ones: equations 10 to 15
        for j in components:
            total = w[:, j].sum()
            prior.append(self.lamda * self.prior[j] + (1 - self.lamda) * total / len(x))
            if total == 0:
                mean.append(self.mean[j])
                variance.append(self.variance[j])
                continue
            temporary_mean = (w[:, j, None] * x).sum(0) / total
            temporary_variance = (w[:, j, None] * (x - temporary_mean) ** 2).sum(0) / total
            mean.append(self.lamda * self.mean[j] + (1 - self.lamda) * temporary_mean)
            variance.append(self.lamda * self.variance[j] + (1 - self.lamda) * temporary_variance)
        if self.order == "appendix":  # steps 1 to 3 come before step 6
            used_mean, used_variance = list(self.mean.clone()), list(self.variance.clone())
        else:  # "Finally" comes after the accumulation
            used_mean, used_variance = mean, variance
        y = torch.zeros_like(x)
        for j in components:  # equations 7 and 16
            standard = (x - used_mean[j]) / torch.sqrt(used_variance[j] + self.eps)
            y = y + w[:, j, None] * (self.gamma[j] * standard + self.beta[j])
        self.store(torch.stack(prior), torch.stack(mean), torch.stack(variance))
        return y

    def split(self, x: Tensor, s: list[int]) -> Tensor:
        mean, variance = list(self.mean.clone()), list(self.variance.clone())
        rows: dict[int, Tensor] = {}
        for j in range(len(self.prior)):
            index = [i for i in range(len(x)) if s[i] == j]
            if not index:
                continue
            group = x[index]
            temporary_mean = group.sum(0) / len(index)
            temporary_variance = ((group - temporary_mean) ** 2).sum(0) / len(index)
            used_mean, used_variance = mean[j], variance[j]
            mean[j] = self.lamda * mean[j] + (1 - self.lamda) * temporary_mean
            variance[j] = self.lamda * variance[j] + (1 - self.lamda) * temporary_variance
            if self.order == "text":
                used_mean, used_variance = mean[j], variance[j]
            out = self.gamma[j] * (group - used_mean) / torch.sqrt(used_variance + self.eps) + self.beta[j]
            rows |= dict(zip(index, out, strict=True))
        self.store(self.prior, torch.stack(mean), torch.stack(variance))
        return torch.stack([rows[i] for i in range(len(x))])

    def store(self, prior: Tensor, mean: Tensor, variance: Tensor) -> None:
        self.prior, self.mean, self.variance = prior.detach().clone(), mean.detach().clone(), variance.detach().clone()


def through(network: nn.Module, images: Tensor, class_set: Sequence[int] | None) -> Tensor:
    """The logits by the compound path, or by the split path of those class sets."""
    for module in network.modules():
        if isinstance(module, PaperNorm):
            module.class_set = class_set
    logits: Tensor = network(images)
    return logits


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """S of the similarity loss, for each image."""
    return (a * b).sum(1) / (a.pow(2).sum(1).sqrt() * b.pow(2).sum(1).sqrt())


def dual_path_loss(
    network: nn.Module, weak: Tensor, strong: Tensor, labels: Tensor, class_sets: Sequence[int], counts: Sequence[int]
) -> Tensor:
    """Algorithm 1, one batch: the paper's similarity loss plus its balanced softmax, mean over the batch."""
    s = [class_sets[label] for label in labels.tolist()]
    compound_weak, split_weak = through(network, weak, None), through(network, weak, s)
    compound_strong, split_strong = through(network, strong, None), through(network, strong, s)
    similarity = -cosine(compound_strong, split_weak.detach()) - cosine(split_strong, compound_weak.detach())
    n = torch.tensor(counts, dtype=compound_strong.dtype)
    weighted = n * torch.exp(compound_strong)
    classification = -torch.log(weighted[range(len(labels)), labels] / weighted.sum(1))
    return (similarity + classification).mean()
