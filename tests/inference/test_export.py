import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image

import longtail
from longtail._errors import DataError, UsageError
from longtail.class_counts import ClassCounts
from longtail.inference import export_onnx
from longtail.inference.hub_folder import write_hub_folder


def classes_by_onnxruntime(file: Path, images: list[Path]) -> list[str]:
    """The predicted classes from the file and what it says about itself, with nothing of ours."""
    session = onnxruntime.InferenceSession(str(file))
    said = session.get_modelmeta().custom_metadata_map
    steps, names = json.loads(said["preprocessing"]), json.loads(said["classes"])
    batch = []
    for path in images:
        image = Image.open(path).convert(steps["channels"])
        assert image.size == (steps["center_crop"],) * 2
        pixels = np.asarray(image, np.float32).reshape(*image.size, -1) / steps["divide_by"]
        batch.append(((pixels - np.float32(steps["mean"])) / np.float32(steps["std"])).transpose(2, 0, 1))
    (logits,) = session.run(None, {"images": np.stack(batch)})
    return [names[k] for k in logits.argmax(1)]


@pytest.fixture(scope="module")
def equal_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose components have never parted."""
    folder = tmp_path_factory.mktemp("runs") / "equal"
    settings = {
        "method": {"name": "compound_bn", "reading_settings": {"component_init": "equal"}},
        "model": {"name": "resnet8"},
    }
    longtail.train("digits-lt:10", epochs=1, batch_size=32, out=folder, settings=settings, show=False)
    return folder


def normalised_by_one_gaussian(file: Path) -> bool:
    return all(node.op_type != "Softmax" for node in onnx.load(str(file)).graph.node)


def test_only_components_that_never_parted_are_exported_as_batch_norm(
    compound_run: Path, equal_run: Path, tmp_path: Path
) -> None:
    assert normalised_by_one_gaussian(longtail.load(equal_run).export(tmp_path / "same.onnx").path)
    assert not normalised_by_one_gaussian(longtail.load(compound_run).export(tmp_path / "parted.onnx").path)


@pytest.mark.parametrize("name", ["digits_run", "compound_run", "equal_run"])
def test_onnxruntime_predicts_the_same_classes(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, digit_files: list[Path]
) -> None:
    classifier = longtail.load(request.getfixturevalue(name))
    written = classifier.export(tmp_path / "new" / "m.onnx")
    assert written.max_difference is not None
    assert written.max_difference < 1e-4
    assert len(written.batch_sizes) == 3
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["m.onnx"]
    expected = [image.guesses[0].name for image in classifier.predict(digit_files)]
    assert classes_by_onnxruntime(written.path, digit_files) == expected
    onnx.checker.check_model(str(written.path), full_check=True)


def test_a_file_that_computes_something_else_is_not_written(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = longtail.load(digits_run)
    write = export_onnx._write

    def write_another(model: torch.nn.Module, *rest: Any) -> None:
        with torch.no_grad():
            model.get_parameter("classifier.bias")[0] += 1e-3
            write(model, *rest)
            model.get_parameter("classifier.bias")[0] -= 1e-3

    monkeypatch.setattr(export_onnx, "_write", write_another)
    with pytest.raises(DataError, match=r"differs from torch's by 0\.001, more than 0\.000"):
        classifier.export(tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_large_logits_may_differ_by_the_rounding_of_their_size(digits_run: Path, tmp_path: Path) -> None:
    classifier = longtail.load(digits_run)
    with torch.no_grad():
        classifier.model.get_parameter("classifier.weight").mul_(1000)
    written = classifier.export(tmp_path / "m.onnx")
    assert written.max_difference is not None
    assert written.max_difference > 1e-4


def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="onnxruntime is not installed") as caught:
        longtail.load(digits_run).export(tmp_path / "m.onnx")
    assert caught.value.fix == "pip install 'longtail[onnx]'"


def test_a_place_that_cannot_be_written(digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    classifier = longtail.load(digits_run)
    for out in (tmp_path / "file" / "m.onnx", tmp_path / "file" / "folder"):
        with pytest.raises(DataError, match="cannot write"):
            classifier.export(out)


def test_an_exported_folder_is_loaded_like_a_run(digits_run: Path, tmp_path: Path, digit_files: list[Path]) -> None:
    classifier = longtail.load(digits_run)
    again = longtail.load(classifier.export(tmp_path / "hub").path)
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert again.predict(digit_files).as_json() == classifier.predict(digit_files).as_json()
    again.export(tmp_path / "hub")  # onto itself: nothing to copy
    assert "## Results" not in (tmp_path / "hub/README.md").read_text()


def test_the_model_card_is_one_that_the_hub_reads(digits_run: Path, tmp_path: Path) -> None:
    write_hub_folder(longtail.load(digits_run), tmp_path / "hub")
    card = ModelCard.load(tmp_path / "hub" / "README.md")
    metrics = {result.metric_name: result.metric_value for result in card.data.eval_results or []}
    run = longtail.training.load_run(digits_run)
    assert metrics["balanced accuracy"] == pytest.approx(run.metrics["balanced"], abs=1e-4)
    assert "many accuracy" not in metrics  # no class has as many images
    assert card.data.pipeline_tag == "image-classification"
    few = ClassCounts(longtail.load(digits_run).class_counts).groups()["few"]
    assert f"{len(few)} classes had fewer than 20 training images" in card.text


def test_class_names_are_text_in_the_model_card(digits_run: Path, tmp_path: Path) -> None:
    classifier = longtail.load(digits_run)
    names = ["<img src=x>", "a|b", "[x](y)", "two\nlines", '"quotes", commas', "🦉", "x" * 200, "`code`", "*b*", "---"]
    object.__setattr__(classifier.saved, "classes", tuple(names))
    write_hub_folder(classifier, tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert yaml.safe_load(text.split("---\n")[1])["library_name"] == "longtail"
    rows = [line for line in text.split("## Classes")[1].splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(names)
    assert "| &lt;img src=x&gt; | 96 |" in rows
    assert "| a\\|b | 74 |" in rows


def test_a_hub_that_does_not_answer(digits_run: Path, tmp_path: Path) -> None:
    # In a process of its own, because the client reads the address once; nobody listens there.
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "none", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "longtail", "export", str(digits_run), "--format", "safetensors"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "hub"), "--push-to-hub", "me/birds"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    what, why, fix = done.stderr.strip().splitlines()[-3:]
    assert done.returncode == 3
    assert f"could not upload {tmp_path / 'hub'} to me/birds on the hub" in what
    assert why == "the folder itself is complete"
    assert "hf auth login" in fix
    assert longtail.load(tmp_path / "hub").classes


def test_an_export_that_is_cut_off_leaves_the_file_that_was_there(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("longtail.inference.hub_folder.shutil.copyfileobj", fail)
    with pytest.raises(DataError, match="No space left on device"):
        write_hub_folder(longtail.load(digits_run), tmp_path)
    assert weights.read_bytes() == b"before"
