"""What compound_bn says of its mixtures, against a double loop over images and pixels."""

import copy
import json

import numpy as np
import pytest
import torch
from scipy.stats import entropy, norm
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import ERM, CompoundBN
from longtail.methods._mixture_use import describe_mixture, mixture_row
from longtail.nn import CompoundBatchNorm2d
from tests.support.small_network import COUNTS, network, norms

PRIOR, MEAN, VAR = (0.2, 0.5, 0.3), (-1.0, 0.2, 1.5), (0.3, 1.0, 0.5)
CLASSES = 4  # of which class 2 has no image


@pytest.fixture
def model() -> nn.Module:
    """One layer that sees the pixels themselves."""
    layer = CompoundBatchNorm2d(1, 3)
    layer.prior.copy_(torch.tensor(PRIOR))
    layer.running_mean.copy_(torch.tensor(MEAN)[:, None])
    layer.running_var.copy_(torch.tensor(VAR)[:, None])
    return nn.Sequential(layer)


def batches(channels: int = 1) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    targets = [torch.tensor([0, 1, 1, 3]), torch.tensor([3, 0, 0])]

    def images(count: int) -> Tensor:
        return torch.randn(count, channels, 8, 8, generator=generator)

    return [Batch((images(len(target)),), target, torch.arange(len(target))) for target in targets]


def test_use_is_the_mean_responsibility_over_pixels_and_images_of_a_class(model: nn.Module) -> None:
    (layer,) = describe_mixture(model, batches(), num_classes=CLASSES)
    rows: dict[int, list[list[float]]] = {}
    for batch in batches():
        for image, target in zip(batch.views[0], batch.target.tolist(), strict=True):
            total = np.zeros(3)
            for pixel in image.numpy().ravel():
                densities = [
                    p * norm.pdf(pixel, m, np.sqrt(v + 1e-5)) for p, m, v in zip(PRIOR, MEAN, VAR, strict=True)
                ]
                total += np.array(densities) / sum(densities)
            rows.setdefault(target, []).append((total / image.numel()).tolist())
    for k, found in enumerate(layer.usage):
        if k in rows:
            assert found == pytest.approx(np.mean(rows[k], axis=0), abs=1e-5)
        else:
            assert found is None
    assert layer.usage[2] is None


def test_priors_distances_and_effective_components_are_those_of_the_buffers(model: nn.Module) -> None:
    (layer,) = describe_mixture(model, batches(), num_classes=CLASSES)
    assert layer.effective_components == pytest.approx(np.exp(entropy(PRIOR)))
    pooled = np.sqrt(np.dot(PRIOR, VAR) + 1e-5)
    assert layer.distances[0] == pytest.approx((0, 1.2 / pooled, 2.5 / pooled))
    assert layer.mean_distance == pytest.approx((1.2 + 2.5 + 1.3) / 3 / pooled)
    row = mixture_row(model)
    assert row["mixture/distance"] == pytest.approx(layer.mean_distance)
    assert row["mixture/effective_components"] == pytest.approx(layer.effective_components)


def test_looking_leaves_random_numbers_buffers_and_the_mode_alone(model: nn.Module) -> None:
    state, buffers = torch.get_rng_state(), copy.deepcopy(dict(model.named_buffers()))
    first, second = (describe_mixture(model, batches(), num_classes=CLASSES) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert all(module.training for module in model.modules())


def test_a_compiled_model_is_seen_too_and_not_compiled_anew_for_it(model: nn.Module) -> None:
    compiled = 0

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        nonlocal compiled
        compiled += 1
        return graph

    model.eval()
    expected = describe_mixture(model, batches(), num_classes=CLASSES)
    model.compile(backend=backend)
    with torch.no_grad():
        model(torch.zeros(64, 1, 8, 8))
        before = compiled
        assert describe_mixture(model, batches(), num_classes=CLASSES) == expected
        model(torch.zeros(64, 1, 8, 8))
    assert compiled == before > 0


def test_a_method_tells_of_each_layer_in_plain_values() -> None:
    method = CompoundBN(network(), COUNTS, components=3)
    found = method.diagnose(method.model, batches(channels=3))
    assert json.loads(json.dumps(found)) == found
    assert len(found["mixture"]) == len(norms(method))
    layers = describe_mixture(method.model, batches(channels=3), num_classes=CLASSES)
    for plain, layer in zip(found["mixture"], layers, strict=True):
        assert plain["name"] == layer.name
        assert plain["priors"] == pytest.approx(layer.priors, abs=1e-5)
        assert (plain["classes"], plain["num_classes"]) == ([0, 1, 3], 4)
        for k, row in zip(plain["classes"], plain["usage"], strict=True):
            assert row == pytest.approx(layer.usage[k], abs=1e-3)
    assert set(method.epoch_row()) == {"mixture/effective_components", "mixture/distance"}


def test_a_model_without_mixtures_tells_nothing() -> None:
    plain = CompoundBN(network(), COUNTS, row="baseline")
    assert plain.diagnose(plain.model, batches(channels=3)) == {}
    assert plain.epoch_row() == {}
    assert ERM(network(), COUNTS).diagnose(network(), batches(channels=3)) == {}
