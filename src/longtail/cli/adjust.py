"""`longtail adjust RUN`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from longtail._errors import UsageError, counted
from longtail._printable import show

if TYPE_CHECKING:
    from longtail.evaluation import Estimate, Promise
    from longtail.training.run_folder.adjust import Adjusted


def adjust(
    run: Annotated[Path, Parameter(name="RUN")],
    /,
    *,
    tau: str | None = None,
    temperature: str | None = None,
    prior: str | None = None,
    abstain_below: float | None = None,
    precision: float | None = None,
    clear: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Choose, on validation images, what is done with the predictions of a run, and store it in the run.

    predict, evaluate, report, export and Python use it from then on; --as-trained there does not. Without options,
    tau and the temperature are chosen. A call replaces what an earlier one stored.

    Parameters
    ----------
    run
        The folder of a run.
    tau
        How much of the training's class prior to take out of the logits: auto, or a number (1: all of it).
    temperature
        What to divide the logits by, which changes confidences only: auto, or a number.
    prior
        How frequent the classes will be: uniform, train, or a CSV or JSON file with a share for each class.
    abstain_below
        Give no prediction for an image with a smaller confidence.
    precision
        Choose that confidence so that this share of the predictions is right, such as 0.95.
    clear
        Go back to the model as it was trained.
    json
        Print one JSON object.
    """
    from longtail.cli.screen import Status

    if clear:
        from longtail.training.run_folder.adjust import clear_adjustment

        if any(value is not None for value in (tau, temperature, prior, abstain_below, precision)):
            raise UsageError("--clear takes no other option", "it removes the adjustment")
        clear_adjustment(run)
        show(f"{run}: adjustment removed, it predicts as trained")
        return 0
    tau_given, temperature_given = _number(tau, "--tau"), _number(temperature, "--temperature")
    with Status(f"adjusting {run}"):
        from longtail.training.run_folder.adjust import adjust as adjust_run

        found = adjust_run(
            run,
            tau=tau_given,
            temperature=temperature_given,
            prior=prior,
            abstain_below=abstain_below,
            precision=precision,
        )
    if json:
        _print_json(found)
    else:
        show("\n".join(_lines(found)))
    return 0


def _number(text: str | None, flag: str) -> float | Literal["auto"] | None:
    if text is None or text == "auto":
        return None if text is None else "auto"
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} must be auto or a number, got {text!r}", "", f"for example {flag} auto") from None


def _lines(found: "Adjusted") -> list[str]:
    decision = found.decision
    lines = [f"{found.path}: {decision}"]
    values = {"tau": f"{decision.tau:.3g}", "temperature": f"{decision.temperature:.3g}", "prior": decision.prior_name}
    values["abstain_below"] = f"{decision.abstain_below:.1%}"
    lines += [f"  {name.replace('_', ' ')} {values[name]}: {how}" for name, how in decision.how.items()]
    rows: dict[str, str] = {
        "balanced accuracy" if decision.prior is None else "accuracy by prior": "accuracy",
        "calibration error": "ece",
    }
    if decision.abstain_below:
        rows |= {"predicted": "answered", "right of these": "precision"}
    pairs = [("on test", found.before, found.held)]
    if decision.promised is not None and decision.before is not None:
        pairs.insert(0, ("promised", decision.before, decision.promised))
    for name, before, after in pairs:
        title = f"{name}, {counted(after.images, 'image')}"
        lines += ["", f"{title:36}{'as trained':>11}  adjusted, 95 % interval"]
        for label, key in rows.items():
            lines.append(f"  {label:34}{_percent(before, key):>11}  {_with_interval(getattr(after, key))}")
    return [*lines, "", f"report: {found.path / 'report.html'}"]


def _percent(promise: "Promise", key: str) -> str:
    estimate: Estimate | None = getattr(promise, key)
    return "-" if estimate is None else f"{estimate.value:.1%}"


def _with_interval(estimate: "Estimate | None") -> str:
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%}  {estimate.low:.1%} to {estimate.high:.1%}"


def _print_json(found: "Adjusted") -> None:
    import json
    from dataclasses import asdict

    content = {"run": str(found.path), "decision": found.decision.as_json()}
    show(json.dumps(content | {"test": {"before": asdict(found.before), "held": asdict(found.held)}}, indent=1))
