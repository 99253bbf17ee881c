"""What a study leaves in its folder: `trials.csv`, `best.yaml` and the page that shows what mattered."""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import optuna
import yaml
from optuna.importance import MeanDecreaseImpurityImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from longtail._errors import UsageError
from longtail._files import csv_rows, whole_text_file, write_text
from longtail.evaluation.report import StudyRecord, StudyTrial, render_study
from longtail.study.open_storage import quiet
from longtail.training.run_config import RunConfig
from longtail.training.run_folder.run_lock import run_lock

TRIALS, BEST, PAGE = "trials.csv", "best.yaml", "study.html"
_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
# Fewer trials do not tell which value mattered.
_FEWEST = 8
# Seconds for which a process waits until another has written.
_PATIENCE = 30.0


def over(study: Study) -> list[FrozenTrial]:
    """The trials that told something: finished, or pruned."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def best_trial(study: Study) -> FrozenTrial | None:
    """The best of the finished trials, the earliest of several; None if there is none."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(done, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def write_study(folder: Path, study: Study, config_of: Callable[[FrozenTrial], RunConfig]) -> None:
    """Write trials.csv and best.yaml, which `longtail train --config` repeats."""
    with _in_turn(folder):
        _write_study(folder, study, config_of)


@contextlib.contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Let the processes of a study write its files one after the other: they share the names of drafts, too."""
    end = time.monotonic() + _PATIENCE
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(run_lock(folder))
                break
            except UsageError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        yield


def _write_study(folder: Path, study: Study, config_of: Callable[[FrozenTrial], RunConfig]) -> None:
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    with whole_text_file(folder / TRIALS) as out:
        rows = [
            [
                trial.number,
                _STATES[trial.state],
                "" if trial.value is None else trial.value,
                *(trial.params.get(name, "") for name in names),
                _error(trial),
            ]
            for trial in trials
        ]
        csv_rows(out, [["trial", "state", "balanced", *names, "error"], *rows])
    best = best_trial(study)
    if best is not None:
        settings = config_of(best).as_dict()
        write_text(folder / BEST, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def write_page(folder: Path, study: Study, *, judge: str, data: str, best: Path) -> Path:
    """Write the page."""
    chosen = best_trial(study)
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    record = StudyRecord(
        title=folder.resolve().name,
        data=data,
        judge=judge,
        best=-1 if chosen is None else chosen.number,
        run=best.name,
        trials=[_record(trial) for trial in trials],
        importances=importances(over(study), chosen),
        choices=_by_choice(trials),
    )
    with _in_turn(folder):
        write_text(folder / PAGE, render_study(record), errors="replace")
    return folder / PAGE


def importances(trials: Sequence[FrozenTrial], best: FrozenTrial | None) -> dict[str, dict[str, float]]:
    """The share of each value in how scores differ: among all trials, and among those that chose as the best did.

    Computed by a random forest on the finished trials (mean decrease in impurity). Empty where too few tell.
    """
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    groups = {"all trials": done}
    if best is not None:
        for name in ("head", "method"):
            if name in best.params:
                same = [trial for trial in done if trial.params.get(name) == best.params[name]]
                groups[f"trials with {name} {best.params[name]}"] = same
    found = {}
    for label, group in groups.items():
        shared = set.intersection(*(set(trial.params) for trial in group)) if group else set()
        varied = sorted(name for name in shared if len({trial.params[name] for trial in group}) > 1)
        scores = {trial.value for trial in group}
        if len(group) < _FEWEST or len(varied) < 2 or len(scores) < 2:
            continue
        with quiet():
            study = optuna.create_study(direction="maximize")
            study.add_trials([_only(trial, varied) for trial in group])
            evaluator = MeanDecreaseImpurityImportanceEvaluator(seed=0)
            found[label] = get_param_importances(study, evaluator=evaluator, params=varied)
    return found


def _only(trial: FrozenTrial, names: Sequence[str]) -> FrozenTrial:
    return optuna.create_trial(
        value=trial.value,
        params={name: trial.params[name] for name in names},
        distributions={name: trial.distributions[name] for name in names},
    )


def _by_choice(trials: Sequence[FrozenTrial]) -> list[tuple[str, int, int, float | None, float | None]]:
    """Of each head or method: trials finished, trials tried, the median score and the best."""
    scores: dict[str, list[float]] = {}
    tried: Counter[str] = Counter()
    for trial in trials:
        name = trial.params.get("head", trial.params.get("method"))
        if name is None:
            continue
        label = f"{name}, fine-tuned" if trial.params.get("fine_tune") else str(name)
        tried[label] += 1
        found = scores.setdefault(label, [])
        if trial.value is not None and trial.state == TrialState.COMPLETE:
            found.append(trial.value)
    rows = [
        (name, len(values), tried[name], statistics.median(values) if values else None, max(values, default=None))
        for name, values in scores.items()
    ]
    return sorted(rows, key=lambda row: -(row[4] or 0.0))


def _record(trial: FrozenTrial) -> StudyTrial:
    steps: Mapping[int, float] = trial.intermediate_values
    value = trial.value if trial.state == TrialState.COMPLETE else steps[max(steps)] if steps else None
    return StudyTrial(
        number=trial.number,
        state=_STATES[trial.state],
        value=value,
        params=dict(trial.params),
        seconds=trial.duration.total_seconds() if trial.duration else None,
        error=_error(trial),
    )


def _error(trial: FrozenTrial) -> str:
    return str(trial.user_attrs.get("error", "its process was stopped" if trial.state == TrialState.FAIL else ""))
