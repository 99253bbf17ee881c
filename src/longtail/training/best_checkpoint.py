"""`best.ckpt`: the weights of the epoch that was best on validation, kept beside `last.ckpt`."""

from pathlib import Path
from typing import Any

from torch import nn

from longtail.training.best_epoch import BestEpoch
from longtail.training.check_state import check_weights, refused
from longtail.training.checkpoint import BEST, read_checkpoint, save_checkpoint
from longtail.training.run_config import RunConfig


def save_best_checkpoint(folder: Path, model: nn.Module, config: RunConfig, found: BestEpoch) -> None:
    """Write `best.ckpt`."""
    content = {"config": config.as_dict(), **found._asdict(), "model": model.state_dict()}
    save_checkpoint(folder, content, name=BEST)


def load_best_checkpoint(folder: Path, model: nn.Module) -> BestEpoch:
    """Put the weights of `best.ckpt` into `model`."""
    content: dict[str, Any] = read_checkpoint(folder / BEST)
    try:
        found = BestEpoch(content["epoch"], content["balanced"])
        model.load_state_dict(content["model"])
    except (RuntimeError, LookupError, TypeError, AttributeError) as error:
        raise refused(str(folder / BEST), (str(error).splitlines() or [type(error).__name__])[-1].strip()) from error
    check_weights(model, where=str(folder / BEST))
    return found
