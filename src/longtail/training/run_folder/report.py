"""`report.html` of a run from its folder alone, and the comparison of several runs; without torch.

Where the run has validation images, logit adjustment and temperature scaling are tried: their parameters are
chosen on these and the result is shown on the test images. Where `longtail adjust` stored a decision, the page is about
the model with it, and shows what was promised on validation beside what held on test.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longtail._errors import DataError, UsageError
from longtail._files import write_text
from longtail.class_counts import ClassCounts
from longtail.evaluation import (
    Comparison,
    Decision,
    Evaluation,
    Predictions,
    ShiftedAccuracy,
    align_predictions,
    choose_tau,
    compare_runs,
    evaluate,
    measure_promise,
    read_metrics,
    scale_temperature,
    shifted_accuracy,
)
from longtail.evaluation.report import Adjustment, PostHoc, Report, render_comparison, render_report
from longtail.training.best_epoch import describe_kept
from longtail.training.run_folder.diagnostics import read_diagnostics
from longtail.training.run_folder.prior_strength import model_prior
from longtail.training.run_folder.read import FinishedRun, open_run
from longtail.training.run_folder.sums import check_sum


def write_report(folder: Path, out: Path | None = None, *, as_trained: bool = False) -> Path:
    """Write the report of the finished run in `folder`, by default to its report.html; return where it is."""
    file = out or folder / "report.html"
    write_text(file, render_report(build_report(folder, as_trained=as_trained)), errors="replace")
    return file


def write_comparison(folders: Sequence[Path], out: Path, *, as_trained: bool = False) -> Comparison:
    """Compare finished runs on the same test images, the first being the baseline, and write the page."""
    comparison = compare(folders, as_trained=as_trained)
    write_text(out, render_comparison(comparison), errors="replace")
    return comparison


def build_report(folder: Path, *, as_trained: bool = False) -> Report:
    """Everything that the folder knows of its run; `as_trained` leaves out what `longtail adjust` stored."""
    run = open_run(folder)
    predictions = run.predictions()
    decision = None if as_trained else run.decision
    diagnostics = read_diagnostics(folder)
    settings = run.settings
    return Report(
        evaluation=run.evaluate(as_trained=as_trained),
        title=folder.resolve().name,
        summary=summarise_settings(settings),
        selection=_selection(folder, settings),
        posthoc=_posthoc(run, predictions) if decision is None else [],
        adjustment=None if decision is None else _adjustment(decision, predictions),
        adjust_command=shlex.join(["longtail", "adjust", str(folder)]),
        shifted=_shifted(run, predictions),
        records=diagnostics.records,
        training=read_training(folder),
        worst_errors=diagnostics.worst_errors,
        problems=diagnostics.problems,
        departures=diagnostics.departures,
        config=(folder / "config.yaml").read_text(encoding="utf-8", errors="surrogateescape"),
        environment=_environment(folder / "env.json"),
        command=shlex.join(["longtail", "train", "--config", str(folder / "config.yaml")]),
    )


def compare(folders: Sequence[Path], *, as_trained: bool = False) -> Comparison:
    """Two or more finished runs on the same test images, with what `longtail adjust` stored unless `as_trained`."""
    if len(folders) < 2:
        raise UsageError(f"a comparison needs at least two runs, got {len(folders)}")
    runs = [open_run(folder) for folder in folders]
    names = _names(folders)
    try:
        found = {name: _as_used(run, as_trained) for name, run in zip(names, runs, strict=True)}
        logits, target = align_predictions(found)
        settings = {name: _flat(run.settings, run.decision) for name, run in zip(names, runs, strict=True)}
        return compare_runs(logits, target, runs[0].class_counts, runs[0].classes, settings=settings)
    except ValueError as error:
        raise DataError(
            str(error),
            "a paired comparison takes the same test images",
            "compare runs on the same data",
            code="not-comparable",
        ) from error


def _as_used(run: FinishedRun, as_trained: bool) -> Predictions:
    found, decision = run.predictions(), None if as_trained else run.decision
    return found if decision is None else replace(found, logits=decision.apply(found.logits))


def _flat(settings: Mapping[str, Any], decision: Decision | None) -> dict[str, str]:
    """Settings by their full keys, as text, without those that are not set; what was adjusted counts as one."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": text for inner, text in _flat(value, None).items() if inner != "adjusted"}
        elif value is not None:
            flat[key] = json.dumps(value, ensure_ascii=False, default=str).strip('"')
    return flat | {"adjusted": "as trained" if decision is None else str(decision)}


def _adjustment(decision: Decision, test: Predictions) -> Adjustment:
    held = measure_promise(decision.apply(test.logits), test.target, decision.priors, decision.abstain_below)
    return Adjustment(decision, measure_promise(test.logits, test.target, decision.priors), held)


def _evaluate(run: FinishedRun, logits: Any, predictions: Predictions) -> Evaluation:
    return evaluate(logits, predictions.target, run.class_counts, run.classes)


def _posthoc(run: FinishedRun, test: Predictions) -> list[PostHoc]:
    if not run.has_predictions("val") or min(run.class_counts) == 0:
        return []
    val = run.predictions("val")
    changes = (
        choose_tau(val.logits, val.target, test.logits, run.class_counts),
        scale_temperature(val.logits, val.target, test.logits),
    )
    return [PostHoc(choice, _evaluate(run, logits, test)) for logits, choice in changes]


def _shifted(run: FinishedRun, test: Predictions) -> tuple[ShiftedAccuracy, ...]:
    prior = model_prior(run.description["method"], run.description.get("head"))
    counts: ClassCounts = run.class_counts
    if prior is None or min(counts) == 0 or counts.imbalance_factor == 1:
        return ()
    return shifted_accuracy(test.logits, test.target, counts, model_prior=prior)


def read_training(folder: Path) -> list[dict[str, float | None]]:
    """The numbers of each epoch; none where the run has lost them."""
    file = folder / "metrics.csv"
    try:
        found = read_metrics(file)
        check_sum(folder, file.name)
        return found
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DataError(
            str(error), "the training curves come from it", f"delete {file} to have none", code="broken-metrics"
        ) from error


def _environment(file: Path) -> dict[str, str]:
    """What the run ran with, as flat text; nothing where it is not known."""
    try:
        content = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, json.JSONDecodeError):
        return {}
    flat = {**content, **content.get("versions", {})} if isinstance(content, dict) else {}
    return {name: str(value) for name, value in flat.items() if value and name != "versions"}


def summarise_settings(settings: Mapping[str, Any]) -> str:
    """The run in words."""
    method, model, head = settings.get("method", {}), settings.get("model", {}), settings.get("head")
    if head and not settings.get("epochs"):
        return (
            f"{head.get('name')} head on frozen features of {model.get('name')} at {settings.get('image_size')} px, "
            f"{settings.get('data')}, seed {settings.get('seed')}"
        )
    loss = f" ({method['loss']})" if "loss" in method else ""
    return (
        f"{method.get('name', 'unknown method')}{loss} on {settings.get('data')}, {model.get('name')}, "
        f"{settings.get('epochs')} epochs, seed {settings.get('seed')}"
    )


def _selection(folder: Path, settings: Mapping[str, Any]) -> str:
    """Which weights were evaluated, and by which rule."""
    if settings.get("head"):
        tuned = settings.get("epochs")
        return "the better of frozen and fine-tuned on validation" if tuned else "head of all training images"
    kept = describe_kept(settings.get("keep"), read_training(folder), epochs=settings.get("epochs") or 0)
    return kept + (", averaged" if settings.get("optim", {}).get("ema") else "")


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, or their whole paths where two have the same name."""
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{twice} is named twice", "a run does not differ from itself", "name two runs")
    return names
