"""From a data set to batches in one call: views, sampler and loader put together with the usual choices."""

from collections.abc import Sequence

from longtail.data.batch_plan import Last
from longtail.data.images import ImageDataset
from longtail.data.loader import Loader
from longtail.data.preprocessing import Preprocessing
from longtail.data.samplers import SAMPLERS, SequentialSampler
from longtail.data.views import ViewedImages


def train_loader(
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    views: Sequence[str] = ("weak",),
    sampler: str = "instance",
    seed: int = 0,
    epochs: int | None = None,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    last: Last = "drop",
    pin_memory: bool = False,
) -> Loader:
    """Batches to train on.

    Args:
        images: the training images.
        preprocessing: how they are seen.
        batch_size: the images of a batch, all ranks together.
        views: of each image, "weak" or "strong", in the order in which the batch has them.
        sampler: a name of `SAMPLERS`.
        seed: of the order and of the augmentation.
        epochs: the length of the training, for the progressive sampler.
        workers: processes that make batches.
        rank: this process.
        world_size: the number of processes that share each batch.
        last: what becomes of the images that do not fill a batch; see `batch_plan`.
        pin_memory: whether batches are put where an accelerator copies them from faster.

    Example:
        >>> from longtail.data import open_dataset
        >>> from longtail.data.preprocessing import preprocessing_of
        >>> data = open_dataset("digits-lt:10")
        >>> views = ("weak", "strong")
        >>> loader = train_loader(data.train, preprocessing_of(data), batch_size=64, views=views)
        >>> loader.set_epoch(0)
        >>> batch = next(iter(loader))
        >>> [tuple(view.shape) for view in batch.views], len(loader)
        ([(64, 1, 8, 8), (64, 1, 8, 8)], 7)
    """
    makers = {"weak": preprocessing.weak, "strong": preprocessing.strong}
    strange = [view for view in views if view not in makers]
    if strange:
        raise ValueError(f"views must be weak or strong, got {strange[0]!r}")
    seen = ViewedImages(
        images,
        [makers[view]() for view in views],
        mean=preprocessing.mean,
        std=preprocessing.std,
        seed=seed,
    )
    order = SAMPLERS[sampler](images.targets, seed=seed, rank=rank, world_size=world_size, epochs=epochs)
    return Loader(seen, order, batch_size=batch_size, workers=workers, last=last, pin_memory=pin_memory)


def eval_loader(
    images: ImageDataset,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    pin_memory: bool = False,
) -> Loader:
    """Batches to evaluate on: each image exactly once over all ranks, in order and without any chance."""
    seen = ViewedImages(images, [preprocessing.evaluation()], mean=preprocessing.mean, std=preprocessing.std)
    order = SequentialSampler(images.targets, rank=rank, world_size=world_size)
    return Loader(seen, order, batch_size=batch_size, workers=workers, last="every", pin_memory=pin_memory)
