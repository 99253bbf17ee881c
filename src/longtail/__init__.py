"""Train image classifiers on long-tailed data.

Importing this package is light: torch and the rest are imported when a name that needs them is first used.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

_SUBMODULES = ("class_counts", "data", "evaluation", "losses", "methods", "models", "nn", "training")

if TYPE_CHECKING:
    from longtail import class_counts, data, evaluation, losses, methods, models, nn, training

__all__ = [
    "__version__",
    "class_counts",
    "data",
    "evaluation",
    "losses",
    "methods",
    "models",
    "nn",
    "training",
]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"longtail.{name}")
    raise AttributeError(f"module 'longtail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
