import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail._errors import DataError
from longtail.training import Callback, RunConfig, train
from tests.support.tiny_runs import Interrupt, config, fail

SETTINGS = {"epochs": 1, "batch_size": 8, "image_size": 16, "checkpoint_steps": 1}


def _image(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(file)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run on a folder, cut off in its second step."""
    for number in range(30):
        _image(tmp_path / "birds" / ("robin" if number % 3 else "wren") / f"{number}.png", number)
    with pytest.raises(ConnectionResetError):
        train(_config(tmp_path), out=tmp_path / "run", callback=Interrupt(2, fail))
    return tmp_path


def _config(place: Path) -> RunConfig:
    return config(data=str(place / "birds"), **SETTINGS)


def _sides(run: Path) -> dict[str, str]:
    with (run / "split.csv").open(newline="") as lines:
        return {row["path"]: row["split"] for row in csv.DictReader(lines)}


def _change(place: Path) -> str:
    """Add five images and remove one, which draws the splits anew."""
    gone = next(path for path, side in _sides(place / "run").items() if side == "train")
    (place / "birds" / gone).unlink()
    for number in range(5):
        _image(place / "birds" / "wren" / f"new{number}.png", 100 + number)
    return gone


def test_a_run_whose_images_changed_is_refused_with_the_list(stopped: Path) -> None:
    gone = _change(stopped)
    with pytest.raises(DataError) as caught:
        train(_config(stopped), out=stopped / "run", resume=True)
    assert "5 images added: 'wren/new0.png'" in caught.value.what
    assert f"1 image removed: {gone!r}" in caught.value.what
    assert "--accept-data-changes" in caught.value.fix


def test_an_image_with_other_content_is_named(stopped: Path) -> None:
    _image(stopped / "birds/wren/0.png", 999)
    with pytest.raises(DataError, match=r"1 image with other content: 'wren/0\.png'"):
        train(_config(stopped), out=stopped / "run", resume=True)


def test_accepted_changes_leave_old_images_on_their_side_and_train_on_new_ones(stopped: Path) -> None:
    before, gone = _sides(stopped / "run"), _change(stopped)
    train(_config(stopped), out=stopped / "run", resume=True, accept_data_changes=True)
    expected = {path: side for path, side in before.items() if path != gone}
    expected |= {f"wren/new{number}.png": "train" for number in range(5)}
    assert _sides(stopped / "run") == expected


def test_data_that_stayed_the_same_resumes(stopped: Path) -> None:
    train(_config(stopped), out=stopped / "run", resume=True, callback=Callback())
