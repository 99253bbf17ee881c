import contextlib
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from longtail._errors import DataError
from longtail.training import train
from longtail.training.run_folder.model import load_model
from longtail.training.seal import digest_of
from tests.support.edit_description import edit_description
from tests.support.tiny_runs import config


def test_a_model_keeps_how_it_saw_images_also_if_it_is_older_than_a_choice(tmp_path: Path) -> None:
    run = train(config(epochs=1, augment="weak", flip=True), out=tmp_path / "run")
    folder = run.path / "model"
    saved = load_model(folder).preprocessing
    assert (saved.augment, saved.flip, saved.crop_scale) == ("weak", True, 0.08)
    edit_description(folder, lambda content: content["preprocessing"].pop("augment"))
    edit_description(folder, lambda content: content["preprocessing"].pop("crop_scale"))
    old = load_model(folder).preprocessing
    assert (old.augment, old.crop_scale) == ("strong", 0.08)
    assert (old.size, old.mean, old.evaluation()) == (saved.size, saved.mean, saved.evaluation())


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_flipped_bit_in_a_model_is_said_or_changes_nothing(digits_run: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(digits_run / "model", folder)
    whole, right, draw = (folder / name).read_bytes(), load_model(folder), random.Random(0)
    for _ in range(40):
        changed, bit = bytearray(whole), draw.randrange(8 * len(whole))
        changed[bit // 8] ^= 1 << bit % 8
        (folder / name).write_bytes(changed)
        with contextlib.suppress(DataError):  # else it was a blank of the JSON
            assert load_model(folder).config == right.config
            assert name == "config.json"


def test_weights_that_are_not_numbers_predict_nothing(digits_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(digits_run / "model", folder)
    weights = load_file(folder / "model.safetensors")
    next(tensor for tensor in weights.values() if tensor.is_floating_point()).view(-1)[0] = torch.nan
    save_file(weights, folder / "model.safetensors")
    digest = digest_of((folder / "model.safetensors").read_bytes())
    edit_description(folder, lambda content: content.update(weights=digest))
    with pytest.raises(DataError, match="not finite numbers"):
        load_model(folder)
