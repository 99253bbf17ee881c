"""Train image classifiers on long-tailed data.

Importing this package is light: torch and the rest are imported when a name that needs them is first used.

    run = longtail.train("birds/", method="compound_bn", epochs=100)
    longtail.load(run.path).predict(["a.jpg"], top=3)
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_SUBMODULES = ("class_counts", "data", "evaluation", "inference", "losses", "methods", "models", "nn", "training")
_FUNCTIONS = {
    "adjust": "longtail.training.run_folder.adjust",
    "check": "longtail._api",
    "compare": "longtail._api",
    "load": "longtail.inference.classifier",
    "train": "longtail._api",
    "tune": "longtail._api",
}

if TYPE_CHECKING:
    from longtail import class_counts, data, evaluation, inference, losses, methods, models, nn, training
    from longtail._api import check, compare, train, tune
    from longtail.inference.classifier import load
    from longtail.training.run_folder.adjust import adjust

__all__ = [
    "__version__",
    "adjust",
    "check",
    "class_counts",
    "compare",
    "data",
    "evaluation",
    "inference",
    "load",
    "losses",
    "methods",
    "models",
    "nn",
    "train",
    "training",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"longtail.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
