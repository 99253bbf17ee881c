"""`longtail train DATA`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from longtail.cli.print_table import accuracy_lines

if TYPE_CHECKING:
    from longtail.training import Run, RunConfig

_FLAG = Parameter(negative="")


def train(
    data: Annotated[str | None, Parameter(name="DATA")] = None,
    /,
    *,
    method: str | None = None,
    model: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    devices: str | None = None,
    precision: Literal["auto", "32", "bf16", "fp16"] | None = None,
    workers: str | None = None,
    image_size: int | None = None,
    root: Path | None = None,
    out: Path | None = None,
    resume: str | None = None,
    config: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    budget: Literal["paper", "quick"] = "paper",
    dry_run: Annotated[bool, _FLAG] = False,
    logger: str | None = None,
    pretrained: str | None = None,
    max_time: float | None = None,
    compile_: Annotated[bool, Parameter(name="--compile", negative="")] = False,
    allow_empty: Annotated[bool, _FLAG] = False,
    ignore_unknown: Annotated[bool, _FLAG] = False,
) -> int:
    """Train on a data set, evaluate on its test images, and write the run's folder with a report.

    Parameters
    ----------
    data
        A folder of class folders; a folder with train/, val/ and test/ of them; a CSV with path,label[,split]; or
        a name: cifar10-lt, cifar10-lt:50 (imbalance factor), imagenet-lt:/path, digits-lt.
    method
        How to train: compound_bn (the default), erm, decoupled; see `longtail list methods`.
    model
        The backbone: resnet32, or any of timm's; see `longtail list models`.
    epochs
        How often each image is seen.
    batch_size
        Images of a batch, all devices together.
    lr
        The highest learning rate.
    seed
        Of the subset, the order, the augmentation and the first weights.
    devices
        How many to use, or auto.
    precision
        32, bf16 or fp16; auto is bf16 where an accelerator has it.
    workers
        Processes that make batches, or auto.
    image_size
        Of what the network sees, for images that are resized.
    root
        Where named data sets lie (default: LONGTAIL_DATA, else the user's cache folder).
    out
        The run's folder (default: the first free runs/NAME-N).
    resume
        Go on with a run: its folder, or auto for --out where there is a checkpoint, and else start.
    config
        A YAML file of settings, such as the config.yaml of a run.
    set_
        Any setting, as key=value: --set optim.momentum=0.8 --set method.components=2
    budget
        quick keeps a twentieth of the recipe's epochs.
    dry_run
        Print the resolved settings and stop.
    logger
        Further loggers beside metrics.csv, with commas between: tensorboard.
    pretrained
        true for timm's weights, or a safetensors file.
    max_time
        Minutes after which to save and stop.
    compile_
        Compile the model.
    allow_empty
        Leave classes without a training image out instead of stopping.
    ignore_unknown
        Leave out test images of classes that training does not have, instead of stopping.
    """
    flags: dict[str, Any] = {
        "data": data,
        "root": None if root is None else str(root),
        "method": {"name": method} if method else None,
        "model": {"name": model, "pretrained": _pretrained(pretrained)},
        "optim": {"lr": lr},
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "devices": _number_or_auto("devices", devices),
        "precision": precision,
        "image_size": image_size,
        "loggers": [name for name in logger.split(",") if name != "csv"] if logger else None,
        "max_time": max_time,
        "compile": compile_ or None,
        "allow_empty": allow_empty or None,
        "ignore_unknown": ignore_unknown or None,
    }
    from longtail.training.settling import settle

    count = _number_or_auto("workers", workers)
    flags["workers"] = None if count == "auto" else count
    settings, folder, going_on = settle(flags, out=out, resume=resume, config=config, overrides=set_, budget=budget)
    if dry_run:
        _print_settings(settings)
        return 0
    from longtail.cli.training_screen import TrainingScreen
    from longtail.training import train as run_training

    with TrainingScreen() as screen:
        run = run_training(settings, out=folder, resume=going_on, callback=screen)
    if screen.is_first_rank:
        print("\n".join(summary(run)))
    return 0


def summary(run: "Run") -> list[str]:
    """What a run found, in a few lines."""
    return [*accuracy_lines(run.evaluation), f"report: {run.path / 'report.html'}"]


def _number_or_auto(name: str, text: str | None) -> int | str | None:
    from longtail._errors import UsageError

    if text is None or text == "auto":
        return text
    if not text.isdigit():
        raise UsageError(f"--{name} must be a number or auto, got {text!r}")
    return int(text)


def _pretrained(text: str | None) -> bool | str | None:
    return {"true": True, "false": False}.get(text.lower(), text) if text is not None else None


def _print_settings(settings: "RunConfig") -> None:
    import yaml

    print(yaml.safe_dump(settings.as_dict(), sort_keys=False, allow_unicode=True), end="")
