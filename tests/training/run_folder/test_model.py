import json
from pathlib import Path

from longtail.training import train
from longtail.training.run_folder.model import load_model
from tests.support.tiny_runs import config


def test_a_model_keeps_how_it_saw_images_also_if_it_is_older_than_a_choice(tmp_path: Path) -> None:
    run = train(config(epochs=1, augment="weak", flip=True), out=tmp_path / "run")
    folder = run.path / "model"
    saved = load_model(folder).preprocessing
    assert (saved.augment, saved.flip, saved.crop_scale) == ("weak", True, 0.08)
    description = json.loads((folder / "config.json").read_text())
    for name in ("augment", "crop_scale"):
        del description["preprocessing"][name]
    (folder / "config.json").write_text(json.dumps(description))
    old = load_model(folder).preprocessing
    assert (old.augment, old.crop_scale) == ("strong", 0.08)
    assert (old.size, old.mean, old.evaluation()) == (saved.size, saved.mean, saved.evaluation())
