"""How long a run will take on this device, from a few of its own steps.

    seconds = epochs · steps an epoch · seconds a step  +  evaluations · test images · seconds an image

The steps are real ones: the run's loop, loader, model and method, on its data; nothing of them is kept. The first step
warms up and does not count, unless an epoch has no second. A method is measured in each of its stages.
"""

import contextlib
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from longtail.data import LongTailData
from longtail.training.build import Parts, batch_size_for, build_run
from longtail.training.callback import Callback
from longtail.training.launch import launch
from longtail.training.loop import TrainingLoop
from longtail.training.predict_logits import predict_logits
from longtail.training.progress import Progress
from longtail.training.run_config import RunConfig
from longtail.training.run_folder.write import RunFolder

# Each stage is measured for about this long, over at most this many steps, and always over one after the first.
_SECONDS, _MOST_STEPS = 1.0, 8


@dataclass(frozen=True)
class Speed:
    """Seconds that the parts of a run take.

    Args:
        stages: for each stage of the training its share of the epochs, and the seconds of a step.
        image: of the evaluation.
    """

    stages: tuple[tuple[float, float], ...]
    image: float

    def seconds(self, config: RunConfig, data: LongTailData) -> float:
        """The duration of a whole run with these settings on this data."""
        steps = max(1, len(data.train) // batch_size_for(config, data.train))
        mean_step = sum(share * step for share, step in self.stages)
        every = config.eval_every or max(1, config.planned_epochs // 20)
        # The last epoch is always evaluated, and on the test images whatever was watched before.
        evaluated = -(-config.planned_epochs // every) * (len(data.val) or len(data.test)) + (
            len(data.test) if len(data.val) else 0
        )
        return config.planned_epochs * steps * mean_step + evaluated * self.image


def measure_speed(config: RunConfig, data: LongTailData) -> Speed:
    """Run a few steps of each stage of a run, and a few evaluations, in this process alone: others may not do so."""
    starts = build_run(config, data).method.stages
    stages = []
    for start, end in zip(starts, (*starts[1:], 1.0), strict=True):
        epoch = min(math.ceil(start * config.planned_epochs), config.planned_epochs - 1)
        stages.append((end - start, _time_steps(build_run(config, data), epoch=epoch)))
    return Speed(tuple(stages), _time_evaluation(build_run(config, data)))


class _EnoughError(Exception):
    """The measurement is over."""


class _Clock(Callback):
    """Notes when steps end, and stops the training when it has seen enough."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._steps = 0

    def start(self, *, epochs: int, steps: int, epoch: int) -> None:
        """The first step begins."""
        del epochs, epoch
        self._steps = steps
        self._ends = [time.perf_counter()]

    def step(self, **_: object) -> None:
        """A step has ended."""
        self._ends.append(time.perf_counter())
        done = len(self._ends) - 1
        late = done > 1 and self._ends[-1] - self._ends[0] > _SECONDS
        if late or done == min(self._steps, _MOST_STEPS):
            raise _EnoughError

    @property
    def seconds(self) -> float:
        """Of one step."""
        first, *later = [end - start for start, end in zip(self._ends, self._ends[1:], strict=False)]
        return sum(later) / len(later) if later else first


def _time_steps(parts: Parts, *, epoch: int) -> float:
    """Seconds a step from the start of `epoch` on."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as place:
        loop = TrainingLoop(parts, RunFolder(Path(place)), launch(parts.config, alone=True), clock)
        loop.progress = Progress(epoch=epoch)
        with contextlib.suppress(_EnoughError):
            loop.run()
    return clock.seconds


def _time_evaluation(parts: Parts) -> float:
    """Seconds an image."""
    size = batch_size_for(parts.config, parts.data.train)
    images = parts.data.test.select(range(min(len(parts.data.test), size)))
    fabric = launch(parts.config, alone=True)
    model = fabric.to_device(parts.method.model)
    predict_logits(model, images, parts, fabric)
    start = time.perf_counter()
    predict_logits(model, images, parts, fabric)
    return (time.perf_counter() - start) / len(images)
