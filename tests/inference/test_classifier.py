import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import longtail
from longtail import inference
from longtail._errors import DataError, UsageError
from longtail.data import FileImages
from longtail.evaluation import read_predictions
from longtail.inference import Classifier
from tests.support.edit_description import edit_description


@pytest.fixture(scope="module")
def classifier(digits_run: Path) -> Classifier:
    return longtail.load(digits_run)


def test_the_test_images_as_files_get_the_probabilities_of_predictions_csv(
    classifier: Classifier, digits_run: Path, digit_files: list[Path]
) -> None:
    saved = read_predictions(digits_run / "predictions.csv", classifier.classes).logits[: len(digit_files)]
    expected = torch.from_numpy(saved).softmax(1)
    found = classifier.predict(digit_files, top=10)
    for image, row in zip(found, expected, strict=True):
        assert [guess.name for guess in image.guesses] == [classifier.classes[k] for k in row.argsort(descending=True)]
        assert [guess.probability for guess in image.guesses] == pytest.approx(
            row.sort(descending=True).values, abs=1e-5
        )


def test_workers_and_batches_change_nothing(classifier: Classifier, digit_files: list[Path]) -> None:
    alone = classifier.predict(digit_files, top=2)
    shared = classifier.predict(digit_files, top=2, workers=2, batch_size=5)
    for a, b in zip(alone, shared, strict=True):
        assert (a.path, [g.name for g in a.guesses]) == (b.path, [g.name for g in b.guesses])
        assert [g.probability for g in a.guesses] == pytest.approx([g.probability for g in b.guesses], abs=1e-5)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_keeps_its_place_and_harms_no_other(
    classifier: Classifier, digit_files: list[Path], workers: int
) -> None:
    bad = digit_files[0].with_name("bad.png")
    bad.write_text("no image")
    expected = classifier.predict(digit_files)
    found = classifier.predict([*digit_files[:3], bad, *digit_files[3:]], workers=workers)
    assert [image.path for image in found.unreadable] == [str(bad)]
    assert "cannot identify image file" in found[3].error
    assert found[3].guesses == ()
    names = [image.guesses[0].name for image in found if not image.error]
    assert names == [image.guesses[0].name for image in expected]


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_photograph_is_seen_as_evaluation_sees_it(classifier: Classifier, tmp_path: Path, ending: str) -> None:
    photograph(tmp_path / f"photo.{ending}")
    logits = classifier.logits(FileImages([tmp_path / f"photo.{ending}"], [0]))
    expected = torch.from_numpy(logits).softmax(1).max().item()
    found = classifier.predict(tmp_path / f"photo.{ending}")[0].guesses[0].probability
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_photograph_is_made_grey_resized_and_cut_to_the_middle(classifier: Classifier, tmp_path: Path) -> None:
    image = photograph(tmp_path / "photo.png")
    logits = classifier.logits(FileImages([tmp_path / "photo.png"], [0]))
    # With Pillow, whose filter is the same but for rounding to whole grey levels.
    small = np.asarray(image.convert("L").resize((10, 8), Image.Resampling.BILINEAR))[:, 1:9] / 255
    seen = classifier.saved.preprocessing
    tensor = torch.tensor((small - seen.mean[0]) / seen.std[0], dtype=torch.float32)[None, None]
    with torch.no_grad():
        assert torch.allclose(classifier.model(tensor), torch.from_numpy(logits), atol=0.02)


def photograph(file: Path) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((400, 320), Image.Resampling.BICUBIC)
    image.save(file)
    return image


def test_classes_with_few_training_images_are_marked(classifier: Classifier, digit_files: list[Path]) -> None:
    rare = {guess.name for image in classifier.predict(digit_files, top=10) for guess in image.guesses if guess.rare}
    counts = dict(zip(classifier.classes, classifier.class_counts, strict=True))
    assert rare == {name for name, count in counts.items() if count < 20}


def test_one_path_needs_no_list_and_top_ends_at_the_classes(classifier: Classifier, digit_files: list[Path]) -> None:
    (found,) = classifier.predict(str(digit_files[0]), top=50)
    assert len(found.guesses) == 10
    assert len(classifier.predict([])) == 0
    with pytest.raises(UsageError, match="top must be at least 1, got 0"):
        classifier.predict(digit_files, top=0)


def test_loading_draws_no_random_numbers(digits_run: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    longtail.load(digits_run)
    assert torch.equal(torch.rand(3), expected)


def test_names_are_shown_as_text_in_a_notebook(digits_run: Path, tmp_path: Path, digit_files: list[Path]) -> None:
    evil = "<img src=x onerror=alert(1)>"
    folder = tmp_path / "<b>run"
    shutil.copytree(digits_run, folder)
    edit_description(folder / "model", lambda config: config.update(classes=[f"{evil}{k}" for k in range(10)]))
    classifier = longtail.load(folder)
    shown = classifier._repr_html_() + classifier.predict([*digit_files, tmp_path / "<i>.png"])._repr_html_()
    assert "<img" not in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "&lt;img src=x" in shown


def broken(run: Path, **changes: object) -> Path:
    edit_description(run / "model", lambda config: config.update(changes))
    return run


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3, "longtail": "9.1"}, "has format 3 of longtail 9.1, this is longtail"),
        ({"classes": None}, "classes is missing"),
        ({"class_counts": [1, 2]}, "class_counts is of another length"),
        ({"preprocessing": {"size": 8}}, "is broken"),
        ({"model": {"name": "resnet14", "in_channels": 1}}, "does not fit"),
        ({"model": {"name": "resnet9", "in_channels": 1}}, "there is no model 'resnet9'"),
        ({"method": {"name": "emr"}}, "no 'emr' among the methods"),
    ],
)
def test_models_that_cannot_be_used(digits_run: Path, tmp_path: Path, changes: dict[str, object], message: str) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    with pytest.raises((DataError, UsageError), match=message):
        longtail.load(broken(tmp_path / "run", **changes))


def test_weights_that_were_cut_off(digits_run: Path, tmp_path: Path) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    file = tmp_path / "run/model/model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(DataError, match="is broken"):
        longtail.load(tmp_path / "run")


@pytest.mark.parametrize("name", inference.__all__)
def test_every_public_name_is_imported_on_first_use(name: str) -> None:
    assert getattr(inference, name).__name__ == name


def test_folders_patterns_pictures_and_arrays_are_predicted_like_files(
    classifier: Classifier, digit_files: list[Path]
) -> None:
    expected = classifier.predict_proba(digit_files)
    folder = digit_files[0].parent
    pictures = [Image.open(file) for file in digit_files]
    arrays = [np.asarray(picture) for picture in pictures]
    for same in (folder, str(folder), f"{folder}/*.png", [folder], pictures, arrays, np.stack(arrays)[..., None]):
        np.testing.assert_allclose(classifier.predict_proba(same), expected, atol=1e-6)
    colour = [picture.convert("RGB") for picture in pictures]
    np.testing.assert_allclose(classifier.predict_proba(colour), expected, atol=1e-6)
    found = classifier.predict(folder)
    assert [image.path for image in found] == [str(file) for file in digit_files]
    alone = classifier.predict(pictures[0])[0]
    assert alone.guesses[0].name == found[0].guesses[0].name
    assert classifier.predict(arrays[0])[0].path == "[0]"


def test_the_probabilities_of_an_unreadable_image_are_nan(classifier: Classifier, digit_files: list[Path]) -> None:
    digit_files[1].write_text("no image")
    found = classifier.predict_proba(digit_files[:3])
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    assert found[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("wrong", [np.zeros((8, 8)), np.zeros((8, 8, 5), np.uint8), 3, [3], torch.zeros(1, 8, 8)])
def test_what_is_no_image_is_refused_in_words(classifier: Classifier, wrong: object) -> None:
    with pytest.raises(UsageError, match="image"):
        classifier.predict(wrong)  # type: ignore[arg-type]  # on purpose
