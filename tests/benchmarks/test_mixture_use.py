"""The interventions on a mixture do what they say, and the bits are those of scipy's entropies."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import Tensor, nn

from benchmarks.mixture_use import IGNORANT, SURE, information, measure, set_temperature, tell_groups
from longtail.nn import CompoundBatchNorm2d, frozen_statistics, split_path
from longtail.nn.functional import responsibilities
from longtail.training import load_run


def _layer() -> CompoundBatchNorm2d:
    torch.manual_seed(0)
    layer = CompoundBatchNorm2d(5, components=3, component_init="random", split_statistics="running")
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


def test_at_the_two_temperatures_weights_are_the_priors_and_certain() -> None:
    layer, x = _layer(), torch.randn(8, 5, 4, 4)
    points = _points(x)
    alike = torch.full((3,), 1 / 3)
    density = responsibilities(points, alike, layer.running_mean, layer.running_var, eps=layer.eps)
    certain = nn.functional.one_hot(density.argmax(1), 3).float()
    assert layer.weight is not None
    assert layer.bias is not None
    for temperature, weights in ((IGNORANT, layer.prior.expand(len(points), 3)), (SURE, certain)):
        set_temperature(layer, temperature)
        each = (points[:, None] - layer.running_mean) / (layer.running_var + layer.eps).sqrt()
        wanted = (weights[..., None] * (each * layer.weight + layer.bias)).sum(1)
        torch.testing.assert_close(_points(layer(x)), wanted, rtol=1e-4, atol=1e-4)


def test_told_groups_normalise_as_the_split_path_by_running_statistics() -> None:
    layer, x, groups = _layer(), torch.randn(8, 5, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2, 2, 0])
    with split_path(layer, groups), frozen_statistics(layer):
        wanted = layer.train()(x)
    tell_groups(layer.eval(), groups)
    torch.testing.assert_close(layer(x), wanted)


def test_a_run_is_measured_as_trained_first(compound_run: Path) -> None:
    found = measure(compound_run)
    assert found["as trained"] == pytest.approx(load_run(compound_run).metrics["balanced"], abs=5e-3)
    assert 0 <= found["bits"] <= 2
