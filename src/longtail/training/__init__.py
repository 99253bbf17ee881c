"""Training runs: the one place that imports Fabric.

Names are imported on first use: settings can be read without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longtail.training.callback import Callback
    from longtail.training.flags import TrainFlags
    from longtail.training.run import Run, finish_run, load_run, train
    from longtail.training.run_config import ModelConfig, OptimConfig, RunConfig, build_config

__all__ = [
    "Callback",
    "ModelConfig",
    "OptimConfig",
    "Run",
    "RunConfig",
    "TrainFlags",
    "build_config",
    "finish_run",
    "load_run",
    "train",
]

_HOME = {
    "Run": "run",
    "finish_run": "run",
    "load_run": "run",
    "train": "run",
    "Callback": "callback",
    "TrainFlags": "flags",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'longtail.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"longtail.training.{_HOME.get(name, 'run_config')}"), name)
