"""How long a plan will take on this device, from a few real steps of each kind of run.

Runs are of one kind if they have the same network, method, batch size and image shape, whatever the number of images
and the seed. A run whose data is missing has no estimate and is not started.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from longtail._errors import DataError, LongtailError, UsageError, counted
from longtail.data import LongTailData
from longtail.evaluation import read_metrics
from longtail.reproduction.plan import Plan, PlannedRun
from longtail.training.build import batch_size_for, open_data
from longtail.training.build_method import find_method
from longtail.training.run_config import RunConfig
from longtail.training.run_folder.write import RunFolder
from longtail.training.speed import Speed, measure_speed
from longtail.training.stop_request import StoppedError


@dataclass
class Estimates:
    """Opens data and measures speeds, each once.

    Args:
        say: called with what is being measured.
    """

    say: Callable[[str], None] = lambda _: None
    _data: dict[str, LongTailData | DataError] = field(default_factory=dict)
    _speeds: dict[str, Speed | None] = field(default_factory=dict)

    def missing(self, run: PlannedRun) -> DataError | None:
        """Why the data of a run is missing; None if it is there."""
        found = self._open(run.config)
        return found if isinstance(found, DataError) else None

    def seconds(self, run: PlannedRun) -> float | None:
        """The time that is left of a run, 0 if it is finished; None if it is unknown."""
        if RunFolder(run.folder).is_finished:
            return 0.0
        data = self._open(run.config)
        if isinstance(data, DataError):
            return None
        speed = self._speed(run.config, data)
        return None if speed is None else speed.seconds(run.config, data) * (1 - share_done(run))

    def _open(self, config: RunConfig) -> LongTailData | DataError:
        if config.data not in self._data:
            self.say(f"opening {config.data}")
            try:
                self._data[config.data] = open_data(config)
            except DataError as error:
                # Data that could be fetched is skipped; data that is broken or misspelt is an error.
                if error.code != "not-fetched":
                    raise
                self._data[config.data] = error
        return self._data[config.data]

    def _speed(self, config: RunConfig, data: LongTailData) -> Speed | None:
        size = batch_size_for(config, data.train)
        shape = (data.image_size or data.name, data.in_channels, config.image_size, size)
        kind = repr((config.model.name, config.method, config.precision, *shape))
        if kind not in self._speeds:
            self.say(f"timing {config.model.name}, {describe_method(config)}, on {config.data}")
            find_method(config)
            # Pretrained weights do not change the speed, so they are not fetched for it.
            plain = replace(config, model=replace(config.model, pretrained=False))
            try:
                self._speeds[kind] = measure_speed(plain, data)
            except UsageError:
                raise
            except StoppedError as error:
                raise StoppedError(error.reason, "stopped before the first run") from error
            except LongtailError:  # out of memory, or diverged: the run itself will report it
                self._speeds[kind] = None
        return self._speeds[kind]


def share_done(run: PlannedRun) -> float:
    """The share of its epochs that an unfinished run has done."""
    try:
        return min(1.0, len(read_metrics(run.folder / "metrics.csv")) / run.config.planned_epochs)
    except (FileNotFoundError, ValueError):
        return 0.0


def total_seconds(plan: Plan, estimates: Estimates) -> tuple[float, int]:
    """The time for all runs of the plan, and the number of runs whose time is unknown and not included."""
    times = [estimates.seconds(run) for run in plan.runs]
    return sum(time for time in times if time is not None), sum(time is None for time in times)


def describe_method(config: RunConfig) -> str:
    """A method with its arguments.

    Example:
        >>> from longtail.training.run_config import build_config
        >>> describe_method(build_config({"method": {"name": "compound_bn", "row": "cbn", "components": 2}}))
        'compound_bn (row=cbn, components=2)'
    """
    parts = [
        name if value is True else f"{name}={value}"
        for name, value in config.method.items()
        if name not in ("name", "loss", "base_settings") and value is not False
    ]
    return f"{config.method['name']} ({', '.join(parts)})" if parts else config.method["name"]


def in_words(seconds: float | None) -> str:
    """A duration in words.

    Example:
        >>> [in_words(time) for time in (0.0, 12.3, 200, 9000, 400_000, None)]
        ['done', '12 s', '3 min', '2.5 h', '4.6 days', '?']
    """
    if seconds is None:
        return "?"
    if seconds == 0:
        return "done"
    for size, unit in ((86_400, "days"), (3600, "h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, round(seconds))} s"


def settings_in_words(configs: Sequence[RunConfig]) -> list[str]:
    """The distinct settings of the runs, one line each."""
    return list(dict.fromkeys(_in_words(config) for config in configs))


def _in_words(config: RunConfig) -> str:
    size = config.image_size
    optim = config.optim
    return (
        f"{config.model.name}{', pretrained' if config.model.pretrained else ''}, "
        f"{f'images of {size} x {size}' if size else 'images at full size'}, "
        f"{counted(config.planned_epochs, 'epoch')}, "
        f"batches of {config.batch_size or 'a size that suits the data'}, "
        f"{optim.name}, learning rate {optim.lr:g}, weight decay {optim.weight_decay:g}"
    )
