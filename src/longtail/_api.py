"""`longtail.train`: the command `longtail train` for Python, with the same checks, defaults and run folder."""

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from longtail.training import Run


def train(
    data: str | PathLike[str] | None = None,
    *,
    method: str | Mapping[str, Any] | None = None,
    model: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    devices: int | Literal["auto"] | None = None,
    precision: Literal["auto", "32", "bf16", "fp16"] | None = None,
    workers: int | None = None,
    image_size: int | None = None,
    root: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    config: str | PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Literal["paper", "quick"] = "paper",
    loggers: Sequence[str] | None = None,
    pretrained: bool | str | None = None,
    max_time: float | None = None,
    compile_model: bool | None = None,
    allow_empty: bool | None = None,
    ignore_unknown: bool | None = None,
    show: bool = True,
) -> "Run":
    """Check, train, evaluate and report; what is None is the recipe's, or else the default's.

    Args:
        data: a folder of class folders; one with train/, val/ and test/ of them; a CSV with path,label[,split]; or a
            name such as `cifar10-lt:50`.
        method: a name, or `{"name": "erm", "loss": "balanced_softmax"}` with that method's own arguments.
        model: the backbone.
        epochs: how often each image is seen.
        batch_size: images of a batch, all devices together.
        lr: the highest learning rate.
        seed: of the subset, the order, the augmentation and the first weights.
        devices: how many, or "auto".
        precision: "32", "bf16", "fp16" or "auto".
        workers: processes that make batches.
        image_size: of what the network sees, for images that are resized.
        root: where named data sets lie.
        out: the run's folder; the first free `runs/NAME-N` if None.
        resume: a run to go on with, or "auto" for the one in `out` where there is one.
        config: a YAML file of settings, such as the config.yaml of a run.
        settings: any further ones, nested: `{"optim": {"momentum": 0.8}}`.
        budget: "quick" keeps a twentieth of the recipe's epochs.
        loggers: beside metrics.csv: "tensorboard".
        pretrained: True for timm's weights, or a safetensors file.
        max_time: minutes after which to save and stop.
        compile_model: whether to compile the model.
        allow_empty: leave classes without a training image out instead of stopping.
        ignore_unknown: leave out test images of classes that training does not have, instead of stopping.
        show: whether to show progress on stderr.

    Returns:
        The finished run: `run.metrics["balanced"]`, `run.metrics["few"]` (None where a group is empty), `run.path`.

    Raises:
        LongtailError: its three lines say what is wrong, why it matters and what to do.
    """
    from longtail.training import Callback
    from longtail.training import train as train_run
    from longtail.training.layering import merge
    from longtail.training.settling import settle

    flags = {
        "data": _path(data),
        "root": _path(root),
        "method": {"name": method} if isinstance(method, str) else method,
        "model": {"name": model, "pretrained": pretrained},
        "optim": {"lr": lr},
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "devices": devices,
        "precision": precision,
        "workers": workers,
        "image_size": image_size,
        "loggers": None if loggers is None else [name for name in loggers if name != "csv"],
        "max_time": max_time,
        "compile": compile_model,
        "allow_empty": allow_empty,
        "ignore_unknown": ignore_unknown,
    }
    chosen, folder, going_on = settle(
        merge(flags, settings or {}),
        out=None if out is None else Path(out),
        resume=_path(resume),
        config=None if config is None else Path(config),
        budget=budget,
    )
    if not show:
        return train_run(chosen, out=folder, resume=going_on, callback=Callback())
    from longtail.cli.training_screen import TrainingScreen

    with TrainingScreen() as screen:
        return train_run(chosen, out=folder, resume=going_on, callback=screen)


def _path(value: str | PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)
