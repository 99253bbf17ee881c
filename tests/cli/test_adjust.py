import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from scipy.special import softmax

import longtail
from longtail.cli import run
from longtail.evaluation import measure_promise, read_predictions
from longtail.training import load_run
from longtail.training.run_folder.read import open_run
from tests.support.edit_description import edit_description

Capture = pytest.CaptureFixture[str]
CLASSES = [str(k) for k in range(10)]


@pytest.fixture
def copied(digits_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(digits_run, tmp_path / "run")
    return tmp_path / "run"


def test_predict_evaluate_onnx_and_python_agree_with_what_was_stored(
    copied: Path, digit_files: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "prior.csv").write_text(
        "class;prior\n" + "".join(f"{k};{0.37 if k == 3 else 0.07}\n" for k in range(10))
    )
    arguments = ["--temperature", "auto", "--prior", str(tmp_path / "prior.csv"), "--abstain-below", "0.5"]
    assert run(["adjust", str(copied), *arguments]) == 0
    decision = open_run(copied).decision
    assert decision is not None
    saved = read_predictions(copied / "predictions.csv", CLASSES)
    logits = decision.apply(saved.logits)
    probs = softmax(logits, axis=1)
    assert (probs.argmax(1) != softmax(saved.logits, axis=1).argmax(1)).any()

    # Python, on images as files, of which predictions.csv has the first.
    classifier = longtail.load(copied)
    np.testing.assert_allclose(classifier.predict_proba(digit_files), probs[: len(digit_files)], atol=1e-5)
    # predict
    capsys.readouterr()
    assert run(["predict", str(copied), *map(str, digit_files), "--json", "--top", "10"]) == 0
    for image, row in zip(json.loads(capsys.readouterr().out), probs, strict=False):
        first = image["predictions"][0]
        assert (first["class"], image["abstained"]) == (CLASSES[row.argmax()], bool(row.max() < 0.5))
        assert first["probability"] == pytest.approx(row.max(), abs=1e-5)
    # evaluate, report and the run
    assert run(["evaluate", str(copied), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["top1"] == pytest.approx((probs.argmax(1) == saved.target).mean())
    assert found["decision"]["temperature"] == decision.temperature
    assert load_run(copied).metrics == found["metrics"]
    # ONNX, in the graph
    assert run(["export", str(copied)]) == 0
    session = onnxruntime.InferenceSession(copied / "model.onnx")
    pixels = np.stack([np.asarray(Image.open(file), np.float32) for file in digit_files])[:, None] / 255
    seen = classifier.saved.preprocessing
    exported, label = session.run(None, {"images": (pixels - np.float32(seen.mean[0])) / np.float32(seen.std[0])})
    np.testing.assert_allclose(softmax(exported, axis=1), probs[: len(digit_files)], atol=1e-5)
    expected = np.where(probs.max(1) < 0.5, -1, probs.argmax(1))
    assert label.tolist() == expected[: len(digit_files)].tolist()
    # and not as it was trained
    capsys.readouterr()
    assert run(["evaluate", str(copied), "--json", "--as-trained"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["metrics"]["top1"] == pytest.approx((saved.logits.argmax(1) == saved.target).mean())
    proba = longtail.load(copied, as_trained=True).predict_proba(digit_files)
    np.testing.assert_allclose(proba, softmax(saved.logits, axis=1)[: len(digit_files)], atol=1e-5)


def test_the_report_has_what_was_promised_beside_what_held(copied: Path, capsys: Capture) -> None:
    assert run(["adjust", str(copied)]) == 0
    out = capsys.readouterr().out
    assert "tau 0: chosen on" in out or "tau" in out.splitlines()[0]
    decision = open_run(copied).decision
    saved = read_predictions(copied / "predictions.csv", CLASSES)
    assert decision is not None
    assert decision.promised is not None
    held = measure_promise(decision.apply(saved.logits), saved.target, decision.priors)
    page = (copied / "report.html").read_text()
    table = page[page.index('id="adjustment"') : page.index("</section>", page.index('id="adjustment"'))]
    for promise in (decision.promised, held):
        assert f"{promise.ece.value:.1%}"[:-1] in table
        assert f"{promise.nll.value:.3f}" in table
    assert run(["adjust", str(copied), "--clear"]) == 0
    assert open_run(copied).decision is None
    assert 'id="adjustment"' not in (copied / "report.html").read_text()


def test_an_exported_folder_keeps_the_decision(copied: Path, tmp_path: Path, digit_files: list[Path]) -> None:
    assert run(["adjust", str(copied), "--tau", "1", "--temperature", "2"]) == 0
    expected = longtail.load(copied).predict_proba(digit_files)
    for flags, same in (([], True), (["--as-trained"], False)):
        out = tmp_path / f"hub{same}"
        assert run(["export", str(copied), "--format", "safetensors", "--out", str(out), *flags]) == 0
        assert bool(np.abs(longtail.load(out).predict_proba(digit_files) - expected).max() < 1e-6) is same
    assert longtail.load(copied).decision is not None


def test_set_by_hand_it_needs_no_validation_images(compound_run: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(compound_run, tmp_path / "run")
    assert run(["adjust", str(tmp_path / "run"), "--tau", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["decision"]["promised"] is None
    assert found["decision"]["how"] == {"tau": "set by hand"}


def test_what_the_loss_left_of_the_prior_in_the_logits_is_exchanged(copied: Path) -> None:
    # Balanced softmax left nothing of it: equal priors change no label, the training's add its logarithm.
    assert run(["adjust", str(copied), "--prior", "uniform", "--temperature", "1"]) == 0
    equal = open_run(copied).decision
    assert equal is not None
    assert (equal.tau, equal.changes_labels) == (0.0, False)
    assert run(["adjust", str(copied), "--prior", "train", "--temperature", "1"]) == 0
    decision, counts = open_run(copied).decision, open_run(copied).class_counts
    assert decision is not None
    assert (decision.tau, decision.how["tau"]) == (0.0, "known from the loss")
    assert np.subtract(decision.shift, np.log(counts.priors)).std() == pytest.approx(0, abs=1e-9)


def test_after_cross_entropy_the_prior_of_the_training_is_there_already(copied: Path) -> None:
    edit_description(copied / "model", lambda content: content["method"].update(loss="cross_entropy", loss_settings={}))
    assert run(["adjust", str(copied), "--prior", "train", "--temperature", "1"]) == 0
    decision = open_run(copied).decision
    assert decision is not None
    assert (decision.tau, decision.changes_labels) == (1.0, False)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--tau", "much"], ["--tau must be auto or a number, got 'much'"]),
        (["--tau", "-1"], ["--tau must be from 0 to 10, got -1"]),
        (["--temperature", "0"], ["--temperature must be from 0.01 to 100, got 0"]),
        (["--precision", "2"], ["--precision must be from 0.01 to 1, got 2"]),
        (["--precision", "0.9", "--abstain-below", "0.5"], ["abstain_below and precision are both given"]),
        (["--clear", "--tau", "1"], ["--clear takes no other option"]),
    ],
)
def test_options_that_do_not_fit(digits_run: Path, capsys: Capture, arguments: list[str], lines: list[str]) -> None:
    assert run(["adjust", str(digits_run), *arguments]) == 2
    assert all(line in capsys.readouterr().err for line in lines)
    assert open_run(digits_run).decision is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"0": 1.0}', "lacks 9 of the run's classes, first '1'"),
        ('{"10": 1.0}', "names the class '10', which the run does not know"),
        (json.dumps(dict.fromkeys(CLASSES, 0.2)), "sums to 2 instead of 1"),
        (json.dumps(dict.fromkeys(CLASSES, "some")), "has 'some' for '0'"),
        (json.dumps(dict.fromkeys(CLASSES, -0.1)), "has -0.1 for '0'"),
        ("[1]", "cannot be read: it is no JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_priors_that_do_not_fit(digits_run: Path, tmp_path: Path, capsys: Capture, content: str, message: str) -> None:
    (tmp_path / "prior.json").write_text(content)
    assert run(["adjust", str(digits_run), "--prior", str(tmp_path / "prior.json")]) == 3
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) <= 4


def test_runs_that_cannot_be_adjusted(compound_run: Path, copied: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(["adjust", str(compound_run)]) == 3
    error = capsys.readouterr().err
    assert "has no predictions of validation images" in error
    assert "--tau 1" in error
    assert run(["adjust", str(compound_run), "--prior", "nowhere.csv"]) == 3
    assert "nowhere.csv does not exist" in capsys.readouterr().err
    (copied / "predictions.csv").unlink()
    assert run(["adjust", str(copied), "--tau", "1"]) == 3
    assert "it has no predictions.csv" in capsys.readouterr().err
    assert run(["adjust", str(tmp_path / "nowhere")]) == 3


def test_a_decision_that_was_tampered_with_is_not_used(copied: Path, capsys: Capture) -> None:
    assert run(["adjust", str(copied), "--temperature", "2"]) == 0
    file = copied / "model/config.json"
    file.write_text(file.read_text().replace('"temperature": 2.0', '"temperature": 3.0'))
    assert run(["evaluate", str(copied)]) == 3
    assert "does not have the digest" in capsys.readouterr().err
