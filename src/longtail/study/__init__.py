"""Studies: settings searched on validation images, by Optuna, in one process or many."""

import importlib.util

from longtail._errors import UsageError


def check_optuna() -> None:
    """Refuse a search where Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise UsageError("Optuna is not installed", "it chooses what to try next", "pip install 'longtail[tune]'")
