"""fastai: `vision_learner` and `fine_tune` with their defaults, from the same ImageNet weights.

One epoch with the body frozen, then as many unfrozen ones as the budget allows. fastai has no budget of its own, so
its schedule is driven by core-time: the one-cycle curves are those of `fine_tune`, and they end with the budget. The
frozen epoch is cut at a third of the budget. All images of `train/` train; nothing is held out.

With `--from-scratch`, resnet18 from random weights by `fit_one_cycle`, at the shorter side of the images if that is
below `--size`.

    python -m benchmarks.studies.folders.rivals.fastai_fine_tune FOLDER --out OUT --seed 0 --seconds 180
"""

import argparse

import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.schedule import ParamScheduler
from fastai.data.block import CategoryBlock, DataBlock
from fastai.data.transforms import IndexSplitter, parent_label
from fastai.torch_core import set_seed
from fastai.vision.augment import Resize, aug_transforms
from fastai.vision.data import ImageBlock
from fastai.vision.learner import vision_learner
from PIL import Image

from benchmarks.studies.folders.rivals import lite0
from benchmarks.studies.folders.rivals.rival import CoreClock, list_images, parse_task, write_outcome

FROZEN_SHARE = 1 / 3


class BudgetSchedule(Callback):  # type: ignore[misc]  # fastai has no types
    """Sets fastai's progress by core-time: of the frozen epoch if it is too long, and always of the rest."""

    order = ParamScheduler.order - 1

    def __init__(self, clock: CoreClock, *, frozen_first: bool = True) -> None:
        self.clock, self.frozen_first = clock, frozen_first
        self.phases: list[float] = []  # the time at which each began
        self.images = [0, 0]

    def before_fit(self) -> None:
        """The next phase begins."""
        self.phases.append(self.clock.used)

    def before_batch(self) -> None:
        """Move the progress on, and stop when the phase has had its time."""
        start = self.phases[-1]
        frozen = self.frozen_first and len(self.phases) == 1
        end = self.clock.seconds * FROZEN_SHARE if frozen else self.clock.seconds
        progress = (self.clock.used - start) / max(end - start, 1e-9)
        self.learn.pct_train = max(self.learn.pct_train, progress) if frozen else progress
        if progress >= 1:
            raise CancelFitException
        self.images[0 if frozen else 1] += len(self.x)


def main() -> None:
    """Train, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from-scratch", action="store_true")
    task = parse_task(parser)
    scratch: bool = task.options.from_scratch
    torch.set_num_threads(1)
    clock = CoreClock(task.seconds)
    with Image.open(list_images(task.folder / "train")[0]) as image:
        size = min(task.size, *image.size) if scratch else task.size
    set_seed(task.seed, reproducible=True)
    block = DataBlock(
        blocks=(ImageBlock, CategoryBlock(vocab=task.classes)),
        get_y=parent_label,
        splitter=IndexSplitter([]),
        item_tfms=Resize(size),
        batch_tfms=aug_transforms(),
    )
    dls = block.dataloaders(list_images(task.folder / "train"), num_workers=0, device=torch.device("cpu"))
    dls.add_tfms([_normalize()], "after_batch")
    learn = vision_learner(dls, "resnet18" if scratch else lite0.NAME, pretrained=False)
    schedule = BudgetSchedule(clock, frozen_first=not scratch)
    with learn.no_bar(), learn.no_logging():
        if scratch:
            learn.unfreeze()
            learn.fit_one_cycle(10_000, cbs=[schedule])
        else:
            lite0.load_backbone(learn.model[0].model)
            learn.fine_tune(10_000, cbs=[schedule])
    training = clock.used

    files = list_images(task.folder / "test")
    with learn.no_bar(), learn.no_logging():
        scores, _ = learn.get_preds(dl=dls.test_dl(files, num_workers=0))
    names = [task.classes[k] for k in scores.argmax(dim=1).tolist()]
    frozen, unfrozen = (images / len(dls.train_ds) for images in schedule.images)
    write_outcome(
        task,
        files,
        names,
        training=training,
        clock=clock,
        packages=("fastai", "timm", "torch", "torchvision"),
        size=size,
        epochs_frozen=round(frozen, 2),
        epochs_unfrozen=round(unfrozen, 2),
    )


def _normalize() -> object:
    from fastai.data.transforms import Normalize

    return Normalize.from_stats(lite0.MEAN, lite0.STD, cuda=False)


if __name__ == "__main__":
    main()
