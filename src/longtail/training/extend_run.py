"""Resume a run with another number of epochs.

The learning rate and the stages of a method are functions of the share of the training that is done. So a run that is
extended goes on as if it had been planned for the new number: its learning rate rises to what that schedule has at this
epoch. What comes out is near to a run of that length from the start, and not the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longtail._errors import UsageError
from longtail.training.optimizer import learning_rate
from longtail.training.run_config import OptimConfig


def extend_run(state: Mapping[str, Any], epochs: int, stages: Sequence[float], *, where: str) -> str | None:
    """What changes, in a sentence; None if the number stays.

    Args:
        state: of the checkpoint.
        epochs: now.
        stages: of the method, as shares of the training.
        where: the run's folder, for errors.
    """
    old, done = state["config"]["epochs"], state["progress"]["epoch"]
    if epochs == old:
        return None
    if epochs < done + bool(state["progress"]["batch"]):
        raise UsageError(
            f"epochs must be at least the {done} that {where} has, got {epochs}",
            "what was trained cannot be taken back",
            f"longtail finish {where} makes a model of what there is",
        )
    share, share_now = done / old, done / epochs
    stage = sum(share >= start for start in stages)
    if stage != sum(share_now >= start for start in stages):
        raise UsageError(
            f"{where} is in stage {stage} of {len(stages)}, of which {epochs} epochs would put it into another",
            "each stage trains other weights, with a learning rate of its own",
            "start a new run with that many epochs",
        )
    optim = OptimConfig(**state["config"]["optim"])
    before, now = (
        learning_rate(optim, progress=min(done / total, 1.0), epochs=total, stages=stages) for total in (old, epochs)
    )
    return (
        f"{epochs} epochs instead of {old}, {done} of them done: the learning rate goes on as in a run of {epochs}, "
        f"from {before:.2g} to {now:.2g}"
    )
