"""Which runs are done, in which order, and how predictions are read."""

from pathlib import Path

import pytest

from benchmarks.studies.folders.peers import PEERS
from benchmarks.studies.folders.run import Run, read_numbers, runs_to_do


def test_runs_go_by_seed_then_peer_then_set_and_leave_out_what_has_a_record() -> None:
    records = [{"set": "plants", "peer": "fastai", "seed": 0}]
    assert runs_to_do(records, ["plants", "groceries"], ["fastai", "timm"], [0, 1])[:4] == [
        Run("groceries", "fastai", 0),
        Run("plants", "timm", 0),
        Run("groceries", "timm", 0),
        Run("plants", "fastai", 1),
    ]


def test_a_deterministic_peer_runs_with_one_seed() -> None:
    assert runs_to_do([], ["plants"], ["linear_probe"], [0, 1, 2]) == [Run("plants", "linear_probe", 0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name in ("ash", "oak"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in (1, 2):
                (tmp_path / split / name / f"{i}.png").touch()
    return tmp_path


@pytest.mark.parametrize("label", ["label", "target"])
def test_predictions_are_numbered_by_class_and_ordered_by_image(folder: Path, label: str) -> None:
    lines = ["test/oak/2.png,oak,oak", "test/ash/1.png,ash,oak", "test/oak/1.png,oak,ash", "/x/test/ash/2.png,ash,ash"]
    (folder / "predictions.csv").write_text("\n".join([f"path,{label},prediction", *lines]))
    assert read_numbers(folder / "predictions.csv", folder) == [1, 0, 0, 1]


def test_predictions_that_lack_an_image_are_refused(folder: Path) -> None:
    (folder / "predictions.csv").write_text("path,label,prediction\ntest/oak/1.png,oak,oak\n")
    with pytest.raises(ValueError, match="each of the 4 test images"):
        read_numbers(folder / "predictions.csv", folder)


def test_our_own_command_has_the_options_of_its_row(tmp_path: Path) -> None:
    plain, scratch = (
        PEERS[name].command(tmp_path, tmp_path / "out", seed=1, seconds=90, environments=tmp_path)
        for name in ("longtail", "longtail_from_scratch")
    )
    assert [word for word in scratch if word not in plain] == ["--from-scratch"]
    assert plain[plain.index("--time") + 1] == "1.5m"
