"""Read a finished run from its folder, without torch: settings, classes, predictions; refuse what is no such thing."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longtail import __version__
from longtail._errors import DataError, UsageError, counted
from longtail.class_counts import ClassCounts
from longtail.data.folder import missing
from longtail.evaluation.decision import Decision, read_decision
from longtail.evaluation.evaluate import evaluate
from longtail.evaluation.predictions import Predictions, read_predictions
from longtail.evaluation.result import Evaluation
from longtail.training.run_config import build_config
from longtail.training.run_folder.run_lock import lock_holder
from longtail.training.run_folder.sums import check_sum
from longtail.training.seal import object_is_sound
from longtail.training.settings import read_config

FORMAT = 2
PREDICTIONS = {"test": "predictions.csv", "val": "model/val_predictions.csv"}

# What `config.json` of a model must have; what stands inside each is checked where it is used.
_KEYS: dict[str, type] = {
    "model": dict,
    "method": dict,
    "classes": list,
    "class_counts": list,
    "preprocessing": dict,
    "weights": str,
}


@dataclass(frozen=True)
class FinishedRun:
    """A run that came to its end.

    Args:
        path: its folder.
        settings: its config.yaml.
        description: config.json of its model.
    """

    path: Path
    settings: dict[str, Any]
    description: dict[str, Any]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return tuple(self.description["classes"])

    @property
    def class_counts(self) -> ClassCounts:
        """The training images of each class."""
        return ClassCounts(self.description["class_counts"])

    @property
    def decision(self) -> Decision | None:
        """What `longtail adjust` stored; None where the run predicts as it was trained."""
        return decision_of(self.description, self.path / "model" / "config.json")

    def evaluate(self, *, as_trained: bool = False) -> Evaluation:
        """The numbers on the test images, by the stored decision unless `as_trained`."""
        found = self.predictions()
        decision = None if as_trained else self.decision
        logits = found.logits if decision is None else decision.apply(found.logits)
        return evaluate(logits, found.target, self.class_counts, self.classes)

    def has_predictions(self, split: Literal["test", "val"]) -> bool:
        """Whether the run kept what it said of the images of `split`."""
        return (self.path / PREDICTIONS[split]).is_file()

    def predictions(self, split: Literal["test", "val"] = "test") -> Predictions:
        """What the run said of the images of `split`."""
        file = self.path / PREDICTIONS[split]
        try:
            found = read_predictions(file, self.classes)
            check_sum(self.path, PREDICTIONS[split])
            return found
        except FileNotFoundError as error:
            raise _unfinished(self.path, file.name) from error
        except (OSError, ValueError) as error:
            raise DataError(
                f"cannot use {file}: {error}",
                "every number of the run comes from it",
                "copy the run's folder again from where it was made",
                code="broken-predictions",
                paths=[str(file)],
            ) from error


def open_run(path: Path) -> FinishedRun:
    """Open the run in `path`.

    Raises:
        DataError: there is none, it is not finished, or another version wrote it.
    """
    if not path.exists():
        raise missing(path)
    inside = sorted(entry.parent for entry in path.glob("*/config.yaml")) if path.is_dir() else []
    if inside and not (path / "config.yaml").exists():
        raise DataError(
            f"{path} is not a run, but a folder of {counted(len(inside), 'run')}",
            "one run is asked for",
            f"name one of them, such as {inside[-1]}",
            code="no-run",
        )
    settings = read_config(path)
    try:
        build_config(settings, str(path / "config.yaml"))
    except UsageError as error:
        raise DataError(error.what, "it is not what a run writes", error.fix, code="broken-config") from error
    if not (path / "model" / "config.json").is_file():
        raise _unfinished(path, "model/config.json")
    return FinishedRun(path, settings, read_description(path / "model"))


def model_folder(path: Path) -> Path:
    """Where the model is: in a run's folder, or in a folder that `longtail export` wrote."""
    if (path / "config.json").is_file() and not (path / "config.yaml").exists():
        return path
    return open_run(path).path / "model"


def read_description(folder: Path) -> dict[str, Any]:
    """The `config.json` of a model, seen to be one of ours and of this version's format."""
    file = folder / "config.json"
    try:
        description = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(file, str(error)) from error
    if not isinstance(description, dict) or "longtail" not in description:
        raise DataError(
            f"{file} is not of longtail",
            "a model folder is what `longtail train` and `longtail export --format safetensors` write",
            "name a run's folder",
            code="no-run",
        )
    if description.get("format") != FORMAT:
        raise DataError(
            f"{folder} has format {description.get('format')!r} of longtail {description['longtail']}, "
            f"this is longtail {__version__}, which reads format {FORMAT}",
            "what it holds could be misread",
            f"use longtail {description['longtail']}, or train the run anew",
            code="other-format",
        )
    wrong = [key for key, kind in _KEYS.items() if not isinstance(description.get(key), kind)]
    if wrong or len(description["classes"]) != len(description["class_counts"]):
        part = wrong[0] if wrong else "class_counts"
        raise _broken(file, f"{part} is {'missing or no ' + _KEYS[part].__name__ if wrong else 'of another length'}")
    counts, names = description["class_counts"], description["classes"]
    if not names or not all(type(count) is int and count >= 0 for count in counts):
        raise _broken(file, "class_counts must have a number of images for each class")
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise _broken(file, "classes must have a name of its own for each class")
    for name in ("method", "head"):
        _check_unit(description.get(name) if name == "head" else description["method"], name, file)
    if not _is_text(description):
        raise _broken(file, "it has characters that are no text")
    if not object_is_sound(description):
        raise _broken(file, "its content does not have the digest that was written with it")
    return description


def _check_unit(settings: Any, name: str, file: Path) -> None:
    """Refuse the settings of a method or a head that are not what one has; a run may have no head."""
    if settings is None and name == "head":
        return
    kinds: dict[str, Any] = {"name": str, "loss": str, "sampler": str, "strength": int | float, "loss_settings": dict}
    if not isinstance(settings, dict) or "name" not in settings:
        raise _broken(file, f"{name} must be a group of settings with a name")
    for key, kind in kinds.items():
        if (value := settings.get(key)) is not None and not isinstance(value, kind):
            raise _broken(file, f"{name}.{key} is {value!r}")
    if not isinstance((settings.get("loss_settings") or {}).get("strength", 1.0), int | float):
        raise _broken(file, f"{name}.loss_settings.strength is no number")


def _is_text(description: dict[str, Any]) -> bool:
    """Whether it can be written again: JSON can spell halves of characters that no file can hold."""
    try:
        json.dumps(description, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def decision_of(description: dict[str, Any], file: Path) -> Decision | None:
    """The decision that is stored beside the weights, if there is one; `file` is where, for the error."""
    content = description.get("decision")
    try:
        return None if content is None else read_decision(content, len(description["classes"]))
    except ValueError as error:
        raise _broken(file, str(error)) from error


def _broken(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file} is broken: {reason}",
        "without it the weights cannot be used",
        "copy it again from where the run was made",
        code="broken-model",
        paths=[str(file)],
    )


def _unfinished(path: Path, name: str) -> DataError:
    holder = lock_holder(path)
    return DataError(
        f"{path} is not finished: it has no {name}",
        f"it is still running: {holder} is training in it"
        if holder
        else "a run has a model and predictions when it came to its end",
        "wait until it has finished" if holder else f"let it finish: longtail train --resume {shlex.quote(str(path))}",
        code="live" if holder else "not-finished",
        paths=[str(path)],
    )
