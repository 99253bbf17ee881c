"""What is seen of the mixtures, against a double loop over images and pixels."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy, norm
from torch import nn

from longtail.nn import CompoundBatchNorm2d
from longtail.training import Callback, build_config, load_run, train
from longtail.training.build import Parts, assemble
from longtail.training.checkpoint import read_checkpoint
from longtail.training.mixture import describe_mixture, mixture_row, record_due, record_mixture

CPU = torch.device("cpu")
SETTINGS: dict[str, Any] = {
    "data": "digits-lt:10",
    "method": {"name": "compound_bn", "components": 3, "start": 0.0},
    "model": {"name": "resnet8"},
    "epochs": 3,
    "batch_size": 128,
    "workers": 0,
}


@pytest.fixture(scope="module")
def parts() -> Parts:
    return assemble(build_config(SETTINGS))


@pytest.fixture
def model() -> nn.Module:
    """One layer that sees the pixels themselves."""
    layer = CompoundBatchNorm2d(1, 3)
    layer.prior.copy_(torch.tensor([0.2, 0.5, 0.3]))
    layer.running_mean.copy_(torch.tensor([[-1.0], [0.2], [1.5]]))
    layer.running_var.copy_(torch.tensor([[0.3], [1.0], [0.5]]))
    return nn.Sequential(layer)


def test_use_is_the_mean_responsibility_over_pixels_and_images_of_a_class(model: nn.Module, parts: Parts) -> None:
    few = replace(parts, data=replace(parts.data, test=parts.data.test.select(np.arange(0, 540, 45))))
    (layer,) = describe_mixture(model, few, CPU)
    mean, std = (np.asarray(value)[0] for value in (few.preprocessing.mean, few.preprocessing.std))
    rows: dict[int, list[list[float]]] = {}
    for i in range(len(few.data.test)):
        pixels, _ = few.data.test[i]
        total = np.zeros(3)
        for pixel in (pixels.numpy().ravel() / 255 - mean) / std:
            densities = [
                prior * norm.pdf(pixel, centre, np.sqrt(var + 1e-5))
                for prior, centre, var in zip((0.2, 0.5, 0.3), (-1.0, 0.2, 1.5), (0.3, 1.0, 0.5), strict=True)
            ]
            total += np.array(densities) / sum(densities)
        rows.setdefault(int(few.data.test.targets[i]), []).append((total / pixels.numel()).tolist())
    for k, found in enumerate(layer.usage):
        if k in rows:
            assert found == pytest.approx(np.mean(rows[k], axis=0), abs=1e-5)
        else:
            assert found is None


def test_priors_distances_and_effective_components_are_those_of_the_buffers(model: nn.Module, parts: Parts) -> None:
    (layer,) = describe_mixture(model, parts, CPU, most_images=4)
    assert layer.effective_components == pytest.approx(np.exp(entropy([0.2, 0.5, 0.3])))
    pooled = np.sqrt(0.2 * 0.3 + 0.5 * 1.0 + 0.3 * 0.5 + 1e-5)
    assert layer.distances[0] == pytest.approx((0, 1.2 / pooled, 2.5 / pooled))
    assert layer.mean_distance == pytest.approx((1.2 + 2.5 + 1.3) / 3 / pooled)
    row = mixture_row(model)
    assert row["mixture/distance"] == pytest.approx(layer.mean_distance)
    assert row["mixture/effective_components"] == pytest.approx(layer.effective_components)


def test_looking_leaves_random_numbers_and_buffers_alone(model: nn.Module, parts: Parts) -> None:
    state, buffers = torch.get_rng_state(), {name: b.clone() for name, b in model.named_buffers()}
    first, second = (record_mixture(model, parts, CPU, epoch=1) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())


def test_a_compiled_model_is_seen_too_and_not_compiled_anew_for_it(model: nn.Module, parts: Parts) -> None:
    compiled = 0

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        nonlocal compiled
        compiled += 1
        return graph

    expected = describe_mixture(model, parts, CPU, most_images=64)
    model.compile(backend=backend)
    model.eval()
    with torch.no_grad():
        model(torch.zeros(64, 1, 8, 8))
        before = compiled
        assert describe_mixture(model, parts, CPU, most_images=64) == expected
        model(torch.zeros(64, 1, 8, 8))
    assert compiled == before > 0


def test_a_model_without_mixtures_has_no_record(parts: Parts) -> None:
    assert record_mixture(nn.BatchNorm2d(1), parts, CPU, epoch=1) == []


@pytest.mark.parametrize("epochs", [1, 2, 19, 20, 21, 39, 100, 400, 401])
@pytest.mark.parametrize("every", [1, 3, 20])
def test_records_are_few_fall_on_evaluations_and_have_the_last_epoch(epochs: int, every: int) -> None:
    found = [epoch for epoch in range(1, epochs + 1) if record_due(epoch, epochs=epochs, every=every)]
    assert len(found) <= 21
    assert found[-1] == epochs
    assert all(epoch % every == 0 for epoch in found[:-1])


class CutOff(Callback):
    """Fails in the middle of the third epoch."""

    def step(self, *, epoch: int, batch: int, **_: Any) -> None:
        if (epoch, batch) == (2, 2):
            raise ConnectionResetError("as if the power went")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(build_config(SETTINGS), out=tmp_path_factory.mktemp("runs") / "whole").path


def test_the_records_survive_a_resume_without_one_twice(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError):
        train(build_config(SETTINGS | {"checkpoint_steps": 1}), out=tmp_path / "run", callback=CutOff())
    kept = read_checkpoint(tmp_path / "run" / "last.ckpt")["progress"]["mixtures"]
    assert [json.loads(line)["epoch"] for line in kept] == [1, 2]
    resumed = train(build_config(SETTINGS), out=tmp_path / "run", resume=True)
    assert [record.epoch for record in resumed.mixture_history] == [1, 2, 3]
    for name in ("model/diagnostics.json", "model/model.safetensors", "metrics.csv"):
        assert (resumed.path / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_tells_its_history(whole: Path) -> None:
    run = load_run(whole)
    last = run.mixture_history[-1]
    assert [layer.name for layer in last.layers] == [layer.name for layer in run.mixture]
    for then, now in zip(last.layers, run.mixture, strict=True):
        assert then.priors == pytest.approx(now.priors, abs=1e-5)
        assert then.mean_distance == pytest.approx(now.mean_distance, rel=1e-3)
        assert sum(row is not None for row in then.usage) == 10
    page = (whole / "report.html").read_text()
    assert page.count('<td data-of="Effective">') == len(run.mixture)
    assert "From epoch 1 to 3, left to right." in page
