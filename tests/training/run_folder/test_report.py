import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from longtail._errors import DataError, UsageError
from longtail.evaluation import adjust_logits, evaluate, read_predictions, write_predictions
from longtail.training.run_folder.prior_strength import model_prior
from longtail.training.run_folder.report import build_report, compare, write_comparison, write_report
from longtail.training.run_folder.sums import remove_sums


def copy(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place))


def embedded(file: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', file.read_text(), flags=re.DOTALL)
    assert found is not None
    content: dict[str, object] = json.loads(found[1])
    return content


def test_a_report_is_rebuilt_from_the_folder_alone(digits_run: Path, tmp_path: Path) -> None:
    run = copy(digits_run, tmp_path / "elsewhere")
    (run / "report.html").unlink()
    assert write_report(run) == run / "report.html"
    written = (run / "report.html").read_text()
    assert written.count("<figure><img src=") == len(build_report(run).worst_errors) > 0
    assert "chosen on 97 validation images" in written
    write_report(run, tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == written


def test_tau_is_chosen_on_validation_and_shown_on_test(digits_run: Path) -> None:
    adjusted, scaled = build_report(digits_run).posthoc
    counts = [96, 74, 57, 44, 34, 26, 20, 16, 12, 10]
    names = [str(k) for k in range(10)]
    val = read_predictions(digits_run / "model/val_predictions.csv", names)
    test = read_predictions(digits_run / "predictions.csv", names)
    scores = [
        evaluate(adjust_logits(val.logits, counts, tau), val.target, counts, replicates=1).balanced.value
        for tau, _ in adjusted.choice.tried
    ]
    assert adjusted.choice.value == adjusted.choice.tried[int(np.argmax(scores))][0]
    expected = evaluate(adjust_logits(test.logits, counts, adjusted.choice.value), test.target, counts, names)
    assert adjusted.evaluation.metrics == expected.metrics
    assert scaled.choice.images == len(val) == 97
    assert scaled.evaluation.top1 == build_report(digits_run).evaluation.top1


def test_without_validation_images_nothing_is_chosen(compound_run: Path) -> None:
    assert build_report(compound_run).posthoc == []


def test_what_the_folder_lacks_is_left_out(digits_run: Path, tmp_path: Path) -> None:
    run = copy(digits_run, tmp_path / "run")
    for name in (
        "env.json",
        "metrics.csv",
        "model/diagnostics.json",
        "model/val_predictions.csv",
        "split.csv",
        "last.ckpt",
    ):
        (run / name).unlink()
    report = build_report(run)
    assert not report.training
    assert not report.worst_errors
    assert not report.posthoc
    assert report.evaluation == build_report(digits_run).evaluation


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.csv", "epoch,lr\n1,x\n", "lr must be a number or empty"),
        ("model/diagnostics.json", "{", "diagnostics.json is broken"),
        ("model/diagnostics.json", '{"format": 9}', "format must be 2, got 9"),
        ("model/diagnostics.json", '{"format": 2, "problems": []}', "diagnostics.json is broken: 'worst_errors'"),
    ],
)
def test_files_that_are_broken(digits_run: Path, tmp_path: Path, name: str, text: str, message: str) -> None:
    run = copy(digits_run, tmp_path / "run")
    (run / name).write_text(text)
    with pytest.raises(DataError, match=message):
        build_report(run)


def test_a_run_does_not_differ_from_its_copy(digits_run: Path, tmp_path: Path) -> None:
    comparison = compare([digits_run, copy(digits_run, tmp_path / "copy")])
    assert comparison.verdict("copy") == "No difference shown between copy and digits-1."


def test_a_run_that_learned_is_better_than_one_that_did_not(idle_run: Path, digits_run: Path, tmp_path: Path) -> None:
    comparison = write_comparison([idle_run, digits_run], tmp_path / "page.html")
    assert re.search(
        r"digits-1 against idle: balanced accuracy is [\d.]+ points higher", comparison.verdict("digits-1")
    )
    assert embedded(tmp_path / "page.html")["baseline"] == "idle"


def test_a_setting_that_is_set_in_no_run_does_not_differ(compound_run: Path, digits_run: Path) -> None:
    differing = compare([digits_run, compound_run]).setting_differences()
    assert differing["method.name"] == ("erm", "compound_bn")
    rows = [set(row) for row in differing.values()]
    assert all(row - {"–", "null"} for row in rows)
    assert not any("null" in row for row in rows)


def test_runs_of_the_same_name_are_told_apart(digits_run: Path, tmp_path: Path) -> None:
    a, b = copy(digits_run, tmp_path / "a" / "run"), copy(digits_run, tmp_path / "b" / "run")
    assert list(compare([a, b]).evaluations) == [str(a), str(b)]
    with pytest.raises(UsageError, match="is named twice"):
        compare([a, b, a])


def test_runs_on_other_images_are_not_compared(digits_run: Path, tmp_path: Path) -> None:
    run = copy(digits_run, tmp_path / "other")
    found = read_predictions(run / "predictions.csv", [str(k) for k in range(10)])
    some = replace(found, paths=found.paths[:50], target=found.target[:50], logits=found.logits[:50])
    write_predictions(
        run / "predictions.csv", paths=some.paths, target=some.target, logits=some.logits, classes=some.classes
    )
    remove_sums(run)
    with pytest.raises(DataError, match="other lacks 490 test images of digits-1"):
        compare([digits_run, run])


@pytest.mark.parametrize(
    ("method", "prior"),
    [
        ({"loss": "cross_entropy", "loss_settings": {"reduction": "mean"}, "sampler": "instance"}, "train"),
        ({"loss": "balanced_softmax", "sampler": "instance"}, "uniform"),
        ({"loss": "logit_adjustment", "loss_settings": {"strength": 1.0}, "sampler": "instance"}, "uniform"),
        ({"loss": "logit_adjustment", "loss_settings": {"strength": 0.5}, "sampler": "instance"}, None),
        ({"loss": "ldam", "sampler": "instance"}, None),
        ({"loss": "cross_entropy", "sampler": "class_balanced"}, None),
        ({"loss": "cross_entropy", "sampler": "instance", "reweight_from": 0.8}, None),
        ({"loss": "cross_entropy", "sampler": "instance", "mixing": "mixup", "reweight_from": None}, "train"),
        ({"loss": "cross_entropy", "sampler": "instance", "mixing": "cmo"}, None),
        ({"loss": "cross_entropy"}, None),
        ({}, None),
    ],
)
def test_the_prior_inside_the_logits(method: dict[str, object], prior: str | None) -> None:
    assert model_prior(method) == prior
