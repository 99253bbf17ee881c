"""`longtail adjust`: store in a run what is done with its logits, chosen on validation images or set by hand.

The validation images are those of the run. A run whose head was fitted on frozen features may have none: its training
images, each predicted in cross-validation by a head that had not seen it, then take their place. The test images choose
nothing; they are measured afterwards, so that the report has what was promised beside what held.
"""

import csv
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longtail._errors import DataError, UsageError
from longtail.data.csv_table import CsvTable
from longtail.evaluation import Decision, Promise, Wanted, choose_decision, decide, measure_promise
from longtail.training.run_folder.model import store_decision
from longtail.training.run_folder.prior_strength import prior_strength
from longtail.training.run_folder.read import FinishedRun, open_run
from longtail.training.run_folder.report import write_report

# Shares that people write down are rounded.
_ROUNDING = 0.005

Auto = Literal["auto"]


@dataclass(frozen=True)
class Adjusted:
    """What `adjust` stored, and what it gives on the test images.

    Args:
        path: the run.
        decision: with what was promised on validation images.
        before: the model as trained, on the test images.
        held: the decision, on the test images.
    """

    path: Path
    decision: Decision
    before: Promise
    held: Promise


def adjust(
    run: str | Path,
    *,
    tau: float | Auto | None = None,
    temperature: float | Auto | None = None,
    prior: str | Path | Mapping[str, float] | None = None,
    abstain_below: float | None = None,
    precision: float | None = None,
) -> Adjusted:
    """Choose what is done with the logits of a run, store it in the run, and write its report anew.

    It replaces what an earlier call stored. What is left out stays as trained; with nothing given, `tau` and
    `temperature` are chosen. From then on `predict`, `evaluate`, `export` and `longtail.load` use it.

    Args:
        run: the folder.
        tau: how much of the class prior to take out of the logits, or "auto" to choose it. With a `prior`, defaults to
            what the training left in them, where its loss tells, else to "auto".
        temperature: what to divide the logits by, or "auto" to choose it. With a `prior`, defaults to "auto" where
            there are validation images: priors are exchanged by Bayes' rule, which takes believable probabilities.
        prior: the classes' shares among the images to come: "uniform", "train", a share for each class, or a CSV
            (`class,prior`) or JSON file of them.
        abstain_below: no prediction for an image with a smaller confidence.
        precision: choose `abstain_below` so that this share of the predictions is right.

    Raises:
        DataError: there is nothing to choose on, or the prior does not fit the classes; the message says which.
        UsageError: a number is out of its range.
    """
    opened = open_run(Path(run))
    if (tau, temperature, prior, abstain_below, precision) == (None,) * 5:
        tau = temperature = "auto"
    if abstain_below is not None and precision is not None:
        raise UsageError(
            "abstain_below and precision are both given", "the precision chooses the confidence", "give one of them"
        )
    shares, name = _shares(prior, opened)
    how = {} if prior is None else {"prior": "set by hand"}
    if prior is not None and tau is None:
        tau = _left_in_logits(opened)
        how["tau"] = "known from the loss"
    if prior is not None and temperature is None and opened.has_predictions("val"):
        temperature = "auto"
    for key, value in (("tau", tau), ("temperature", temperature), ("abstain_below", abstain_below)):
        if value not in (None, "auto"):
            how.setdefault(key, "set by hand")
    wanted = Wanted(
        tau=None if tau == "auto" else float(tau or 0.0),
        temperature=None if temperature == "auto" else float(1.0 if temperature is None else temperature),
        prior=shares,
        prior_name=name,
        abstain_below=abstain_below or 0.0,
        precision=precision,
        how=tuple(how.items()),
    )
    test = opened.predictions()
    decision = _decide(opened, wanted)
    store_decision(opened.path / "model", decision)
    write_report(opened.path)
    held = measure_promise(decision.apply(test.logits), test.target, decision.priors, decision.abstain_below)
    return Adjusted(opened.path, decision, measure_promise(test.logits, test.target, decision.priors), held)


def clear_adjustment(run: str | Path) -> None:
    """Go back to the model as it was trained."""
    opened = open_run(Path(run))
    store_decision(opened.path / "model", None)
    write_report(opened.path)


def _decide(run: FinishedRun, wanted: Wanted) -> Decision:
    _check_ranges(wanted)
    try:
        if run.has_predictions("val"):
            val = run.predictions("val")
            return choose_decision(val.logits, val.target, run.class_counts, wanted)
        if wanted.needs_validation:
            raise _nothing_to_choose_on(run, wanted)
        return decide(
            run.class_counts,
            tau=wanted.tau or 0.0,
            temperature=wanted.temperature or 1.0,
            prior=wanted.prior,
            prior_name=wanted.prior_name,
            abstain_below=wanted.abstain_below,
            how=dict(wanted.how),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_ranges(wanted: Wanted) -> None:
    for flag, value, least, most in (
        ("--tau", wanted.tau, 0.0, 10.0),
        ("--temperature", wanted.temperature, 0.01, 100.0),
        ("--abstain-below", wanted.abstain_below, 0.0, 0.9999),
        ("--precision", wanted.precision, 0.01, 1.0),
    ):
        if value is not None and not least <= value <= most:
            raise UsageError(f"{flag} must be from {least:g} to {most:g}, got {value:g}")


def _nothing_to_choose_on(run: FinishedRun, wanted: Wanted) -> DataError:
    open_ = {"tau": wanted.tau is None, "temperature": wanted.temperature is None, "precision": bool(wanted.precision)}
    name = next(key for key, is_open in open_.items() if is_open)
    by_hand = {"tau": "--tau 1", "temperature": "--temperature 1.5", "precision": "--abstain-below 0.8"}[name]
    return DataError(
        f"{run.path} has no predictions of validation images",
        f"the {name} is chosen on them; the test images may not choose anything",
        f"train with --set val_fraction=0.1, or set it by hand: "
        f"{shlex.join(['longtail', 'adjust', str(run.path)])} {by_hand}",
        code="no-validation",
        paths=[str(run.path)],
    )


def _left_in_logits(run: FinishedRun) -> float | Auto:
    """The strength of the training prior in the logits, which is what a new prior has to replace."""
    strength = prior_strength(run.description["method"], run.description.get("head"))
    return "auto" if strength is None or strength < 0 else strength


def _shares(prior: str | Path | Mapping[str, float] | None, run: FinishedRun) -> tuple[tuple[float, ...] | None, str]:
    """The share of each class in the order of the run's classes, and what to call them."""
    if prior is None or prior == "uniform":
        return None, "uniform"
    if prior == "train":
        return run.class_counts.priors, "train"
    if isinstance(prior, Mapping):
        given, name = {str(key): value for key, value in prior.items()}, "by hand"
    else:
        given, name = _read_shares(Path(prior)), str(prior)
    return _checked(given, name, run), name


def _checked(given: Mapping[str, Any], name: str, run: FinishedRun) -> tuple[float, ...]:
    why = "every class of the run needs its share of the images to come"

    def wrong(what: str, fix: str, *paths: str) -> DataError:
        return DataError(f"prior {name} {what}", why, fix, code="bad-prior", paths=paths)

    unknown = [label for label in given if label not in run.classes]
    if unknown:
        known = ", ".join(run.classes[:5])
        raise wrong(f"names the class {unknown[0]!r}, which the run does not know", f"its classes are {known}, ...")
    absent = [label for label in run.classes if label not in given]
    if absent:
        raise wrong(
            f"lacks {len(absent)} of the run's classes, first {absent[0]!r}", "add a line for each, 0 if need be"
        )
    shares = {}
    for label, text in given.items():
        try:
            shares[label] = float(text)
        except (TypeError, ValueError):
            raise wrong(f"has {text!r} for {label!r}", "write a number from 0 to 1") from None
        if not 0 <= shares[label] <= 1:
            raise wrong(f"has {shares[label]:g} for {label!r}", "write a number from 0 to 1")
    total = sum(shares.values())
    if abs(total - 1) > _ROUNDING:
        raise wrong(f"sums to {total:.4g} instead of 1", "divide each share by their sum")
    return tuple(shares[label] / total for label in run.classes)


def _read_shares(file: Path) -> dict[str, Any]:
    """A share for each class from a JSON object, or from a CSV with the columns class and prior."""
    try:
        if file.suffix.lower() == ".json":
            content = json.loads(file.read_text(encoding="utf-8-sig"))
            if not isinstance(content, dict):
                raise ValueError("it is no JSON object")
            return content
        table = CsvTable(file)
        label, share = table.column("label"), table.column("prior")
        return {row[label].strip(): row[share].strip() for _, row in table.rows()}
    except FileNotFoundError as error:
        raise DataError(
            f"{file} does not exist",
            "--prior is uniform, train, or a file with the share of each class",
            "name a CSV with the columns class,prior, or a JSON object",
            code="bad-prior",
        ) from error
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{file} cannot be read: {error}",
            "it says how frequent each class will be",
            "name a CSV with the columns class,prior, or a JSON object",
            code="bad-prior",
            paths=[str(file)],
        ) from error
