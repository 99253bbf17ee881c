"""What a study searches: the settings of a trial from the values that Optuna suggests.

Your own images start from pretrained weights: there the heads are searched, each with its strength and weight decay,
and fine-tuning where the time allows it. From scratch the method is searched, its learning rate, weight decay and
strength. Each range contains the default, which is the first trial, so that a study never ends below it but by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from longtail._errors import UsageError
from longtail.heads import HEADS
from longtail.training.recipes import find_recipe, list_presets
from longtail.training.run_config import RunConfig
from longtail.training.settings import Settings, merge

# Methods from scratch: a loss each, and the paper's norm. The first is the default.
METHODS = ("erm", "cross_entropy", "logit_adjustment", "ldam_drw", "compound_bn")
# Factors of the recipe's learning rate, and bounds of weight decay from scratch.
_LR_FACTORS, _WEIGHT_DECAY = (0.1, 4.0), (1e-5, 5e-3)


class Suggests(Protocol):
    """A trial of Optuna, or one with fixed values."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number within bounds."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of several."""


@dataclass(frozen=True)
class Range:
    """Bounds of an argument, on a logarithmic scale or not; `whole` rounds it."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


_DECAY, _TAU, _SMOOTHING = Range(1e-3, 0.3, log=True), Range(0.0, 2.0), Range(0.0, 0.3)
_WHITENS, _WHITENING = "linear.whitens", "linear.whitening"
# The arguments of each head that are searched.
_HEADS: Mapping[str, Mapping[str, Range]] = {
    "linear": {"weight_decay": _DECAY, "strength": _TAU, "label_smoothing": _SMOOTHING},
    "cosine": {"iterations": Range(5, 80, log=True, whole=True), "strength": _TAU, "label_smoothing": _SMOOTHING},
    "crt": {"weight_decay": _DECAY},
    "lws": {"weight_decay": _DECAY},
    "tau_norm": {"tau": Range(0.0, 2.5)},
    "los": {"label_smoothing": Range(0.8, 0.995)},
    "disalign": {"power": Range(0.8, 1.6)},
    "max_norm": {"radius": Range(0.1, 2.0, log=True)},
}


@dataclass(frozen=True)
class SearchSpace:
    """The settings that are searched.

    Args:
        base: all settings, planned; a trial changes some.
        choices: names of heads, or of methods and presets where there is no head.
        tunes: whether some trials fine-tune the network for the epochs of `base`.
    """

    base: RunConfig
    choices: tuple[str, ...]
    tunes: bool = False

    @property
    def has_heads(self) -> bool:
        """Whether it searches heads."""
        return self.base.head is not None

    def suggest(self, trial: Suggests) -> Settings:
        """The settings of a trial that differ from the base."""
        return self._heads(trial) if self.has_heads else self._methods(trial)

    def first(self) -> list[dict[str, Any]]:
        """The values to try first: the default, and what a run without a study compares with it."""
        default = self.default()
        return [default, default | {_WHITENS: True, _WHITENING: 1.0}] if _WHITENS in default else [default]

    def default(self) -> dict[str, Any]:
        """The values that a run has without a study, as far as they are searched."""
        values: dict[str, Any] = {}
        if self.has_heads:
            name = self.choices[0]
            head = HEADS[name]([2, 1], **_arguments(self.base.head, name))
            values["head"] = name
            values |= {f"{name}.{key}": getattr(head, key) for key in _HEADS[name]}
            if name == "linear":
                values[_WHITENS] = False
            if self.tunes:
                values["fine_tune"] = False
            return values
        optim = self.base.optim
        low, high = _WEIGHT_DECAY
        return {"method": self.choices[0], "lr": optim.lr, "weight_decay": min(max(optim.weight_decay, low), high)}

    def _heads(self, trial: Suggests) -> Settings:
        name = trial.suggest_categorical("head", self.choices)
        head: dict[str, Any] = {"name": name, **_arguments(self.base.head, name)}
        for key, bounds in _HEADS[name].items():
            value = trial.suggest_float(f"{name}.{key}", bounds.low, bounds.high, log=bounds.log)
            head[key] = round(value) if bounds.whole else value
        if name == "linear":
            whitens = trial.suggest_categorical(_WHITENS, (False, True))
            head["whitening"] = trial.suggest_float(_WHITENING, 0.1, 10.0, log=True) if whitens else None
        found: Settings = {"head": head}
        if self.tunes:
            if not trial.suggest_categorical("fine_tune", (False, True)):
                return found | {"epochs": 0}
            low, high = (self.base.optim.lr * factor for factor in _LR_FACTORS)
            found["optim"] = {"lr": trial.suggest_float("lr", low, high, log=True)}
            found["method"] = {
                "strength": trial.suggest_float("strength", 0.0, 2.0),
                "layer_decay": trial.suggest_float("layer_decay", 0.5, 1.0),
            }
        return found

    def _methods(self, trial: Suggests) -> Settings:
        name = trial.suggest_categorical("method", self.choices)
        low, high = (self.base.optim.lr * factor for factor in _LR_FACTORS)
        method = method_settings(self.base, name)
        if method.get("loss") == "logit_adjustment":
            strength = trial.suggest_float("strength", 0.5, 2.0)
            method = merge(method, {"loss_settings": {"strength": strength}})
        return {
            "method": method,
            "optim": {
                "lr": trial.suggest_float("lr", low, high, log=True),
                "weight_decay": trial.suggest_float("weight_decay", *_WEIGHT_DECAY, log=True),
            },
        }


def choose_choices(base: RunConfig, asked: Sequence[str], *, pinned: str | None) -> tuple[str, ...]:
    """The heads or methods to search: those asked for, else the one that the settings pin, else all.

    Args:
        base: settings of the study.
        asked: by the user.
        pinned: the head or method that the settings name; None if they name none.
    """
    known: Sequence[str] = list(_HEADS) if base.head is not None else METHODS
    chosen = tuple(asked) or ((pinned,) if pinned else tuple(known))
    kind = "head" if base.head is not None else "method"
    for name in chosen:
        if base.head is not None and name not in _HEADS:
            raise UsageError(f"{kind} {name!r} cannot be searched", "", f"there are {', '.join(_HEADS)}")
        if base.head is None and not find_recipe(base.data, name):
            raise UsageError(f"{kind} {name!r} has no recipe", "", "`longtail list methods` shows all")
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"a {kind} is named twice: {', '.join(chosen)}")
    return chosen


def method_settings(base: RunConfig, name: str) -> Settings:
    """The settings of a method or preset on the data of `base`, which keeps what it has for its own method."""
    recipe = find_recipe(base.data, name)
    presets = list_presets()
    if name == base.method["name"] and name not in presets:
        return dict(base.method)
    return {"name": name, **recipe.get("method", {})}


def _arguments(head: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """What the settings say of the head `name`, apart from its name."""
    if head is None or head.get("name") != name:
        return {}
    return {key: value for key, value in head.items() if key != "name"}
