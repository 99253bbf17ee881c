"""Whitening by the scatter within the classes: directions in which images of one class differ count less.

    x̃ = s L⁻¹ x,    L Lᵀ = Σ + λ t I,    Σ = 1/(N − K) Σ_i (x_i − m_{y_i})(x_i − m_{y_i})ᵀ

with class means m, the mean t of Σ's eigenvalues, a ridge λ, and the scale s at which x̃ has a mean square of 1. A
linear layer on x̃ is one on x, so nothing is added to the network. A large λ leaves the features as they are.

It is what linear discriminant analysis does with features. It pays where the images to come differ from those of
training in ways in which the training images of a class differ among themselves already: other light, another shop.

Reference: Hastie, Buja and Tibshirani, "Penalized discriminant analysis", Annals of Statistics 1995.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Whitening(NamedTuple):
    """A linear map of features.

    Attributes:
        factor: L, lower triangular.
        scale: s.
    """

    factor: Tensor
    scale: float

    def apply(self, features: Tensor) -> Tensor:
        """x̃ of features (N, D)."""
        white: Tensor = torch.linalg.solve_triangular(self.factor, features.T, upper=False).T
        return self.scale * white

    def fold(self, layer: nn.Linear) -> nn.Linear:
        """Make of a layer on x̃ the same one on x, in place."""
        with torch.no_grad():
            weight = torch.linalg.solve_triangular(self.factor, layer.weight, upper=False, left=False)
            layer.weight.copy_(self.scale * weight)
        return layer


def whiten_within_classes(features: Tensor, target: Tensor, ridge: float) -> Whitening:
    """Estimate the map from features (N, D) with labels (N,).

    Args:
        features: standardised, or with mean 0.
        target: from 0.
        ridge: λ, above 0.
    """
    _, inverse, counts = target.unique(return_inverse=True, return_counts=True)
    means = features.new_zeros(len(counts), features.shape[1]).index_add_(0, inverse, features) / counts[:, None]
    inside = features - means[inverse]
    scatter = inside.T @ inside / max(len(features) - len(counts), 1)
    level = max(float(scatter.diagonal().mean()), 1e-6)
    scatter.diagonal().add_(ridge * level)
    found = Whitening(torch.linalg.cholesky(scatter), 1.0)
    return found._replace(scale=float(found.apply(features).square().mean().clamp_min(1e-12).rsqrt()))
