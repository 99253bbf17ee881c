"""Models of several branches on one trunk."""

import copy
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from longtail.models.split_stages import split_stages
from longtail.nn.cosine_classifier import CosineClassifier

MOST_EXPERTS = 64


class BranchedModel(nn.Module, ABC):
    """What such models share; `forward_features` joins the features of the branches, `classifier` takes them."""

    classifier: nn.Module

    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return self.classifier

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """Images to the features of all branches, (B, D times the branches)."""

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features to logits, or to what the classifier takes (here the features)."""
        logits: Tensor = x if pre_logits else self.classifier(x)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.forward_head(self.forward_features(x))


class ExpertHeads(nn.ModuleList):
    """A classifier for each of k experts; from the features of all, (B, k D), to the mean of their logits."""

    def of_each(self, features: Tensor) -> Tensor:
        """The logits of each expert, (k, B, K)."""
        return torch.stack([head(part) for head, part in zip(self, features.chunk(len(self), dim=1), strict=True)])

    def forward(self, features: Tensor) -> Tensor:
        """The mean logits, (B, K)."""
        return self.of_each(features).mean(0)


class ExpertEnsemble(BranchedModel):
    """A network whose last stages exist once for each expert, with a classifier each.

    Args:
        model: one that `split_stages` knows; its modules are taken over.
        experts: k.
        stages: how many of the last stages each expert has of its own.
        scale: of the cosines of new cosine classifiers. None for linear ones: the first expert keeps the model's, and
            the others have new ones, which drive them apart.
    """

    classifier: ExpertHeads

    def __init__(self, model: nn.Module, experts: int, *, stages: int = 2, scale: float | None = None) -> None:
        super().__init__()
        if experts < 1:
            raise ValueError(f"experts must be at least 1, got {experts}")
        if experts > MOST_EXPERTS:
            raise ValueError(f"experts must be at most {MOST_EXPERTS}, got {experts:,}: each is a network")
        stem, blocks, pool, classifier = split_stages(model)
        self.trunk = nn.Sequential(stem, *blocks[:-stages])
        expert = nn.Sequential(*blocks[-stages:], pool)
        self.experts = nn.ModuleList([expert, *(copy.deepcopy(expert) for _ in range(experts - 1))])
        sizes, like = (classifier.in_features, classifier.out_features), classifier.weight
        if scale is None:
            bias = classifier.bias is not None
            others = [nn.Linear(*sizes, bias=bias, device=like.device, dtype=like.dtype) for _ in range(experts - 1)]
            self.classifier = ExpertHeads([classifier, *others])
        else:
            self.classifier = ExpertHeads(
                CosineClassifier(*sizes, scale=scale, device=like.device, dtype=like.dtype) for _ in range(experts)
            )

    def forward_features(self, x: Tensor) -> Tensor:
        """Images to the features of all experts, (B, k D)."""
        shared = self.trunk(x)
        return torch.cat([expert(shared) for expert in self.experts], dim=1)
