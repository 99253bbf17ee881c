"""From settings to the parts of a run: data, model, method, loaders; and the settings with nothing left open."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail._errors import DataError, UsageError
from longtail.data import LongTailData, open_dataset
from longtail.data.check import MIRRORED, mirrored_in_words
from longtail.data.datasets import DATASETS
from longtail.data.images import ImageDataset
from longtail.data.loader import Loader, eval_loader, train_loader
from longtail.data.open_dataset import VAL_FRACTION
from longtail.data.preprocessing import Preprocessing, preprocessing_of
from longtail.methods import Method
from longtail.models.create_model import check_model_name
from longtail.models.packaged_weights import MODEL as PACKAGED
from longtail.models.pretrained_weights import PretrainedWeights, find_weights
from longtail.training.build_method import build_method, find_method
from longtail.training.check_method import check_method
from longtail.training.room_in_memory import refuse_large_batch, refuse_many_scores
from longtail.training.run_config import Precision, RunConfig
from longtail.training.run_folder.model import load_model
from longtail.training.run_folder.read import model_folder

# Between the seeds of the samplers of one step, so that two of one kind draw different images.
_SAMPLER_STRIDE = 1_000_003
# Images up to this side get a network for small images when it is trained from scratch.
_SMALL, _LARGE = 64, 224

# From so many training images on, the images of a batch unless the settings have them.
_BATCHES = ((20_000, 128), (2_000, 64), (0, 32))


@dataclass(frozen=True)
class Parts:
    """The parts of a run.

    Args:
        config: its settings, resolved: whatever a default becomes, they train the same.
        data: the images.
        preprocessing: how they are seen.
        method: with the model in it.
        weights: that the model starts from; None for random ones.
    """

    config: RunConfig
    data: LongTailData
    preprocessing: Preprocessing
    method: Method
    weights: PretrainedWeights | None = None


def build_run(config: RunConfig, data: LongTailData | None = None, *, device: torch.device | str = "cpu") -> Parts:
    """Open the data (unless it is given) and build model and method; the first weights come from the seed.

    Networks of other runs that the method needs are put on `device`; the model follows when it is trained.
    """
    if data is None:
        data = open_data(config)
    config = name_network(config, data)
    weights = weights_for(config)
    preprocessing = preprocessing_for(config, data, weights)
    if config.epochs != 0:
        refuse_large_batch(batch_size_for(config, data.train), data.in_channels, preprocessing.size)
    if data.mirrored and not preprocessing.flip:
        data = _without_flips(data, chosen=config.flip is None)
    method = build_method(
        config,
        class_counts=list(data.class_counts),
        in_channels=data.in_channels,
        image_size=preprocessing.size,
        weights=weights,
        networks={name: _network_of(config, name, data.classes).to(device) for name in find_method(config).needs},
    )
    remarks = check_method(method, config, min(batch_size_for(config, data.train), len(data.train)))
    data = replace(data, notes=(*data.notes, *remarks))
    return Parts(_resolved(config, data, preprocessing, method, weights), data, preprocessing, method, weights)


def open_data(config: RunConfig) -> LongTailData:
    """Open the data, checked: files that cannot be read are left out.

    A head is cross-validated, so that nothing is held out for it; what judges fine-tuning is held out later.
    """
    fraction = 0.0 if config.head is not None else config.val_fraction
    data = open_dataset(
        config.data,
        config.root,
        config.seed,
        val_fraction=fraction,
        path_column=config.path_column,
        label_column=config.label_column,
        allow_empty=config.allow_empty,
        ignore_unknown=config.ignore_unknown,
        check=True,
    )
    refuse_many_scores(max(len(data.val), len(data.test)), len(data.classes))
    return data


def name_network(config: RunConfig, data: LongTailData) -> RunConfig:
    """The settings with a network: as asked, else the packaged one, or from scratch one for the size of the images."""
    if config.model.name is not None:
        return config
    small = (config.image_size or data.typical_side or _LARGE) <= _SMALL
    scratch = "resnet20" if small else "resnet18"
    name = scratch if config.model.pretrained is False else PACKAGED
    return replace(config, model=replace(config.model, name=name))


def weights_for(config: RunConfig) -> PretrainedWeights | None:
    """The weights that the network starts from."""
    try:
        check_model_name(str(config.model.name))
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        return find_weights(str(config.model.name), config.model.pretrained)
    except (ValueError, FileNotFoundError, ConnectionError) as error:
        raise UsageError(
            str(error),
            "no weights, nothing to start from",
            "leave out --model and --pretrained for the weights that are installed, or pass --from-scratch",
        ) from error


def preprocessing_for(config: RunConfig, data: LongTailData, weights: PretrainedWeights | None) -> Preprocessing:
    """How the network sees the images: as the settings say, and normalised as the weights expect."""
    seen = preprocessing_of(
        data, config.image_size, flip=config.flip, augment=config.augment, crop_scale=config.crop_scale
    )
    expected = weights.normalisation(data.in_channels) if weights else None
    if expected is not None:
        seen = replace(seen, mean=expected[0], std=expected[1])
    # A frozen network is shown all of an image: its edges are no worse than its centre.
    return replace(seen, whole=config.head is not None)


def batch_size_for(config: RunConfig, images: ImageDataset) -> int:
    """The images of a batch: as asked, else smaller for small sets, which then still have enough steps in an epoch."""
    if config.batch_size is not None:
        return config.batch_size
    usual = next(size for number, size in _BATCHES if len(images) >= number)
    return min(usual, len(images))


def workers_for(config: RunConfig, images: ImageDataset) -> int:
    """How many processes make batches: as asked, else none for small sets in memory, else the spare cores."""
    if config.workers is not None:
        return config.workers
    spare = max(1, min(8, (os.cpu_count() or 1) - 1))
    in_memory = hasattr(images, "images")
    return 0 if in_memory and len(images) < 5000 else spare


def precision_for(config: RunConfig) -> Precision:
    """The precision: as asked, else bf16 where an accelerator has it, else 32."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32"


def training_loader(
    parts: Parts, number: int = 0, *, sampler: str | None = None, rank: int = 0, world_size: int = 1
) -> Loader:
    """Batches to train on from the method's sampler `number`, or from `sampler` in a further place."""
    config, images = parts.config, parts.data.train
    return train_loader(
        images,
        parts.preprocessing,
        batch_size=min(batch_size_for(config, images), len(images) // world_size * world_size),
        views=parts.method.views,
        sampler=sampler or parts.method.samplers[number],
        seed=config.seed + _SAMPLER_STRIDE * number,
        epochs=config.planned_epochs,
        workers=workers_for(config, images),
        rank=rank,
        world_size=world_size,
        pin_memory=torch.cuda.is_available(),
    )


def evaluation_loader(
    parts: Parts, images: ImageDataset, *, rank: int = 0, world_size: int = 1, batch_size: int | None = None
) -> Loader:
    """Batches to evaluate on, each image once over all ranks; by default as large as those of the training."""
    usual = max(batch_size_for(parts.config, parts.data.train), 4 * world_size) // world_size * world_size
    return eval_loader(
        images,
        parts.preprocessing,
        batch_size=batch_size or usual,
        workers=workers_for(parts.config, images),
        rank=rank,
        world_size=world_size,
        pin_memory=torch.cuda.is_available(),
    )


def _resolved(
    config: RunConfig,
    data: LongTailData,
    preprocessing: Preprocessing,
    method: Method,
    weights: PretrainedWeights | None,
) -> RunConfig:
    networks = {name: config.method[name] for name in method.needs}
    fraction = config.val_fraction
    if fraction is None:
        fraction = 0.0 if config.head or config.data.partition(":")[0] in DATASETS else VAL_FRACTION
    pretrained = config.model.pretrained
    return replace(
        config,
        method={"name": config.method["name"], **networks, **method.settings()},
        model=replace(config.model, pretrained=weights is not None if pretrained is None else pretrained),
        batch_size=batch_size_for(config, data.train),
        keep=config.keep or ("last" if config.patience is None else "best"),
        val_fraction=fraction,
        mirror_features=bool(config.mirror_features),
        image_size=preprocessing.size,
        flip=preprocessing.flip,
        augment=preprocessing.augment,
        crop_scale=preprocessing.crop_scale,
        workers=workers_for(config, data.train),
        precision=precision_for(config),
        eval_every=config.eval_every or max(1, config.planned_epochs // 20),
    )


def _without_flips(data: LongTailData, *, chosen: bool) -> LongTailData:
    """The data without the problem that images are mirrored; with a note of it if that was `chosen` for the user."""
    note = f"{mirrored_in_words(data.mirrored)}: training does not mirror images; --flip does all the same"
    problems = tuple(problem for problem in data.problems if problem.code != MIRRORED)
    return replace(data, notes=(*data.notes, note) if chosen else data.notes, problems=problems)


def _network_of(config: RunConfig, name: str, classes: tuple[str, ...]) -> nn.Module:
    """The network of the finished run that `method.NAME` names."""
    run: Any = config.method.get(name)
    if not isinstance(run, str):
        raise UsageError(
            f"method.{name} must name a finished run, got {run!r}",
            f"{config.method['name']} learns from its network",
            f"--set method.{name}=runs/NAME",
        )
    try:
        saved = load_model(model_folder(Path(run)))
    except DataError as error:
        raise DataError(f"method.{name}: {error.what}", error.why, error.fix, code=error.code) from error
    if saved.classes != classes:
        raise DataError(
            f"{run} was trained on other classes than {config.data}",
            f"method.{name} must answer for the same classes, in the same order",
            "name a run on the same data",
            code="other-classes",
        )
    return saved.model.requires_grad_(False).eval()
