"""From settings to the parts of a run: data, model, method, loaders."""

import os
from dataclasses import dataclass, replace

import torch

from longtail._errors import UsageError
from longtail.data import LongTailData, open_dataset
from longtail.data.check import check_data
from longtail.data.images import ImageDataset
from longtail.data.loader import Loader, eval_loader, train_loader
from longtail.data.open_dataset import take_inventory
from longtail.data.preprocessing import Preprocessing, preprocessing_of
from longtail.methods import METHODS, Method
from longtail.models import create_model
from longtail.training.optimizer import reseed
from longtail.training.run_config import RunConfig, check_method_settings


@dataclass(frozen=True)
class Parts:
    """What a run works with."""

    data: LongTailData
    preprocessing: Preprocessing
    method: Method


def assemble(config: RunConfig, data: LongTailData | None = None) -> Parts:
    """Open the data (unless it is given) and build model and method; the first weights come from the seed."""
    if data is None:
        data = open_data(config)
    preprocessing = preprocessing_of(data, config.image_size)
    method = build_method(
        config,
        class_counts=list(data.class_counts),
        in_channels=data.in_channels,
        image_size=preprocessing.size,
        pretrained=config.model.pretrained,
    )
    return Parts(data, preprocessing, method)


def open_data(config: RunConfig) -> LongTailData:
    """Open the data after a look at it, leaving out the files that cannot be read."""
    lenient = {"allow_empty": config.allow_empty, "ignore_unknown": config.ignore_unknown}
    report = check_data(take_inventory(config.data, config.root, config.seed, **lenient))
    data = open_dataset(
        config.data,
        config.root,
        config.seed,
        val_fraction=config.val_fraction,
        leave_out=report.unreadable,
        **lenient,
    )
    return replace(data, problems=tuple(report.problems))


def build_method(
    config: RunConfig, *, class_counts: list[int], in_channels: int, image_size: int, pretrained: bool | str = False
) -> Method:
    """The model and the method around it."""
    kind = find_method(config)
    settings = {key: value for key, value in config.method.items() if key != "name"}
    reseed(config.seed, 0)
    try:
        model = create_model(
            config.model.name, len(class_counts), in_channels=in_channels, pretrained=pretrained, image_size=image_size
        )
        method = kind(model, class_counts, **settings)
        method.check_epochs(config.epochs)
        return method
    except (ValueError, FileNotFoundError, ConnectionError, KeyError, TypeError) as error:
        raise UsageError(str(error.args[0] if error.args else error)) from error


def find_method(config: RunConfig) -> type[Method]:
    """The class of the method, once its arguments are seen to be its own."""
    try:
        kind = METHODS[config.method["name"]]
    except KeyError as error:
        raise UsageError(str(error.args[0]), "", "`longtail list methods` shows all") from error
    check_method_settings(kind, config.method, "the run's settings")
    return kind


def workers_for(config: RunConfig, images: ImageDataset) -> int:
    """How many processes make batches: as asked, else none for small sets in memory, else the spare cores."""
    if config.workers is not None:
        return config.workers
    spare = max(1, min(8, (os.cpu_count() or 1) - 1))
    in_memory = hasattr(images, "images")
    return 0 if in_memory and len(images) < 5000 else spare


def training_loader(config: RunConfig, parts: Parts, *, sampler: str, rank: int, world_size: int) -> Loader:
    """Batches to train on, with the views and the sampler that the method asks for."""
    size = min(config.batch_size, len(parts.data.train) // world_size * world_size)
    return train_loader(
        parts.data.train,
        parts.preprocessing,
        batch_size=size,
        views=parts.method.views,
        sampler=sampler,
        seed=config.seed,
        epochs=config.epochs,
        workers=workers_for(config, parts.data.train),
        rank=rank,
        world_size=world_size,
        pin_memory=torch.cuda.is_available(),
    )


def evaluation_loader(config: RunConfig, parts: Parts, images: ImageDataset, *, rank: int, world_size: int) -> Loader:
    """Batches to evaluate on, each image once over all ranks."""
    return eval_loader(
        images,
        parts.preprocessing,
        batch_size=max(config.batch_size, 4 * world_size) // world_size * world_size,
        workers=workers_for(config, images),
        rank=rank,
        world_size=world_size,
        pin_memory=torch.cuda.is_available(),
    )
