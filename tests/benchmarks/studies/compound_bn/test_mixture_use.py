"""The interventions on a mixture do what they say, and the bits are those of scipy's entropies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from benchmarks.studies.compound_bn.mixture_use import (
    Usage,
    Weights,
    as_trained,
    ignoring_the_point,
    information,
    measure,
    sure,
    true_group,
    weigh_by,
)
from longtail.nn import CompoundBatchNorm2d
from longtail.nn.functional import responsibilities
from longtail.training import load_run


def _layer() -> CompoundBatchNorm2d:
    torch.manual_seed(0)
    layer = CompoundBatchNorm2d(5, components=3)
    nn.init.normal_(layer.running_mean)
    layer.train()(torch.randn(8, 5, 4, 4) * 2)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer.eval()


def _points(x: Tensor) -> Tensor:
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def test_information_is_the_entropies_less_that_of_both() -> None:
    usage = np.random.default_rng(0).dirichlet([1, 1, 1], size=10)
    both = usage / usage.sum()
    wanted = entropy(both.sum(0), base=2) + entropy(both.sum(1), base=2) - entropy(both.ravel(), base=2)
    assert information(usage.tolist()) == pytest.approx(wanted)
    assert information([[0.2, 0.8], [0.2, 0.8]]) == pytest.approx(0)
    assert information([[1.0, 0.0], [0.0, 1.0]]) == pytest.approx(1)


@pytest.mark.parametrize("intervention", [as_trained, ignoring_the_point, sure])
def test_each_intervention_weighs_the_affine_maps_by_its_responsibilities(intervention: Weights) -> None:
    layer, x = _layer(), torch.randn(8, 5, 4, 4)
    points = _points(x)
    mixture = GaussianMixture(3, covariance_type="diag")
    mixture.weights_, mixture.means_ = layer.prior.numpy(), layer.running_mean.numpy()
    mixture.covariances_ = (layer.running_var + layer.eps).numpy()
    mixture.precisions_cholesky_ = mixture.covariances_**-0.5
    density = mixture._estimate_log_prob(points.numpy())
    weights: dict[Weights, Any] = {
        as_trained: mixture.predict_proba(points.numpy()),
        ignoring_the_point: np.tile(mixture.weights_, (len(points), 1)),
        sure: np.eye(3)[density.argmax(1)],
    }
    assert layer.weight is not None
    assert layer.bias is not None
    each = (points[:, None] - layer.running_mean) / (layer.running_var + layer.eps).sqrt()
    wanted = (torch.tensor(weights[intervention])[..., None] * (each * layer.weight + layer.bias)).sum(1).float()
    weigh_by(layer, intervention)
    torch.testing.assert_close(_points(layer(x)), wanted, rtol=1e-4, atol=1e-4)


def test_as_trained_is_what_the_layer_does() -> None:
    layer, x = _layer(), torch.randn(8, 5, 4, 4)
    wanted = layer(x)
    weigh_by(layer, as_trained)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-4, atol=1e-4)


def test_images_of_a_known_group_are_normalised_by_its_component_alone() -> None:
    layer, x, groups = _layer(), torch.randn(8, 5, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2, 2, 0])
    assert layer.weight is not None
    assert layer.bias is not None
    weigh_by(layer, true_group(groups))
    for image, group, y in zip(x, groups, layer(x), strict=True):
        mean, var = layer.running_mean[group], layer.running_var[group]
        weight, bias = layer.weight[group], layer.bias[group]
        wanted = nn.functional.batch_norm(image[None], mean, var, weight, bias, eps=layer.eps)
        torch.testing.assert_close(y, wanted[0], rtol=1e-4, atol=1e-4)


def test_usage_is_the_mean_of_the_responsibilities_over_the_images_of_a_class() -> None:
    layer, x, target = _layer(), torch.randn(8, 5, 4, 4), torch.tensor([0, 1, 1, 0, 0, 1, 0, 0])
    usage = Usage(nn.Sequential(layer), classes=2)
    for part in (slice(0, 3), slice(3, 8)):
        usage.start_batch(target[part])
        layer(x[part])
    mixture = (layer.prior, layer.running_mean, layer.running_var)
    wanted = [responsibilities(_points(x[target == k]), *mixture, eps=layer.eps).mean(0).tolist() for k in (0, 1)]
    assert usage.bits() == pytest.approx(information(wanted), abs=1e-6)


def test_a_run_is_measured_as_trained_first(compound_run: Path) -> None:
    found = measure(compound_run)
    assert found["as trained"] == pytest.approx(load_run(compound_run).metrics["balanced"], abs=5e-3)
    assert 0 <= found["bits"] <= 2
