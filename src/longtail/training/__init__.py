"""Training runs: the one place that imports Lightning."""

from longtail.training.config import ModelConfig, OptimConfig, RunConfig, build_config
from longtail.training.run import Run, load_run, train
from longtail.training.watcher import Watcher

__all__ = ["ModelConfig", "OptimConfig", "Run", "RunConfig", "Watcher", "build_config", "load_run", "train"]
