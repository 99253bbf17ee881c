"""A trained model with its classes, preprocessing and device.

Images go through the loader and the view that evaluated the run, so that its test images get the predictions that its
predictions.csv has.
"""

import html
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail._errors import DataError, UsageError, counted
from longtail.class_counts import ClassCounts, Group
from longtail.data.images import ImageDataset
from longtail.data.loader import eval_loader
from longtail.data.scan import scan_file
from longtail.data.unlabelled import Recoloured, Source, UnlabelledImages, as_sources
from longtail.evaluation import Decision
from longtail.inference.image_predictions import Guess, ImagePrediction, ImagePredictions
from longtail.training.ranges import MOST_WORKERS
from longtail.training.run_folder.model import SavedModel, load_model
from longtail.training.run_folder.read import model_folder

if TYPE_CHECKING:
    from longtail.inference.exported import Exported

Progress = Callable[[int, int], None]

_BATCH = 64
# With fewer images, starting worker processes takes longer than they save.
_ALONE = 2 * _BATCH


class Classifier:
    """A trained model, ready to use.

    Args:
        saved: the model as it was read.
        path: the folder that it came from.
        device: where it computes; defaults to an accelerator if there is one.
        as_trained: leave out what `longtail adjust` stored.

    With a run in `runs/birds-1`, `load("runs/birds-1").predict(["a.jpg"])[0].guesses[0].name` is the most probable
    class of an image.
    """

    def __init__(
        self,
        saved: SavedModel,
        path: Path,
        device: torch.device | str | None = None,
        *,
        as_trained: bool = False,
    ) -> None:
        chosen = device or (torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None)
        self.saved, self.path = saved, path
        self.decision: Decision | None = None if as_trained else saved.decision
        self.device = torch.device(chosen or "cpu")
        self.model = saved.model.to(self.device)
        groups = self.class_counts.groups()
        self._group: dict[int, Group] = {k: group for group, members in groups.items() for k in members}

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.saved.classes

    @property
    def class_counts(self) -> ClassCounts:
        """The number of training images of each class."""
        return ClassCounts(self.saved.class_counts)

    def predict(
        self,
        images: Source | Iterable[Source],
        *,
        top: int = 3,
        batch_size: int = _BATCH,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> ImagePredictions:
        """The most probable classes of each image, one entry per image, in order.

        A file that cannot be read gets an entry with an `error` and no guesses.

        Args:
            images: files, folders, patterns such as `birds/*.jpg`, CSV files, Pillow images, or uint8 arrays with
                channels last; one or many.
            top: number of classes for each image.
            batch_size: images at a time.
            workers: processes that decode images; by default, chosen by the number of images and cores.
            progress: called with the number of images that are done, and of all.
        """
        if top < 1:
            raise UsageError(f"top must be at least 1, got {top}")
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, got {batch_size}")
        if workers is not None and not 0 <= workers <= MOST_WORKERS:
            raise UsageError(f"workers must be at least 0 and at most {MOST_WORKERS}, got {workers}")
        sources = as_sources(images)
        given = self._unlabelled(sources)
        found: list[tuple[Guess, ...]] = []
        for logits in self._batches(given, batch_size, workers):
            best = logits.softmax(1).topk(min(top, logits.shape[1]))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            found += [tuple(self._guess(k, p) for p, k in zip(*pair, strict=True)) for pair in pairs]
            if progress is not None:
                progress(len(found), len(sources))
        names = [source if isinstance(source, str) else f"[{i}]" for i, source in enumerate(sources)]
        # The reasons are found again here: shared memory carries no text.
        errors = {i: scan_file(names[i], full=True).error or "cannot be decoded" for i in given.unreadable}
        least = self.decision.abstain_below if self.decision is not None else 0.0
        return ImagePredictions(
            [
                ImagePrediction(name, (), errors[i])
                if i in errors
                else ImagePrediction(name, guesses, abstained=guesses[0].probability < least)
                for i, (name, guesses) in enumerate(zip(names, found, strict=True))
            ]
        )

    def predict_proba(
        self,
        images: Source | Iterable[Source],
        *,
        batch_size: int = _BATCH,
        workers: int | None = None,
    ) -> NDArray[np.float32]:
        """The probability of each class for each image, (N, K), in the order of `classes`; see `predict`.

        The row of a file that cannot be read is NaN.
        """
        given = self._unlabelled(as_sources(images))
        rows = [logits.softmax(1).numpy() for logits in self._batches(given, batch_size, workers)]
        probs = np.concatenate(rows) if rows else np.zeros((0, len(self.classes)), np.float32)
        probs[given.unreadable] = np.nan
        return probs

    def logits(
        self,
        images: ImageDataset,
        *,
        batch_size: int = _BATCH,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """The logits (N, K) of labelled images, in their order, with the decision applied.

        Images become grey or RGB as the model needs them.
        """
        if len(images) and len(images[0][0]) != self.saved.in_channels:
            size = self.saved.preprocessing.evaluation().crop.decode_size
            images = Recoloured(images, self.saved.in_channels, size)
        rows: list[NDArray[np.float32]] = []
        done = 0
        for logits in self._batches(images, batch_size, workers):
            rows.append(logits.numpy())
            done += len(logits)
            if progress is not None:
                progress(done, len(images))
        return np.concatenate(rows) if rows else np.zeros((0, len(self.classes)), np.float32)

    def export(self, out: str | PathLike[str]) -> "Exported":
        """Export the model; see `longtail.inference.export`.

        Args:
            out: a file that ends in `.onnx`, or a folder for the weights as safetensors and a model card.
        """
        from longtail.inference.export import export

        return export(self, Path(out))

    @torch.no_grad()
    def _batches(self, images: ImageDataset, batch_size: int, workers: int | None) -> Iterator[Tensor]:
        if not len(images):
            return
        if workers is None:
            workers = 0 if len(images) < _ALONE else max(1, min(8, (os.cpu_count() or 1) - 1))
        loader = eval_loader(images, self.saved.preprocessing, batch_size=batch_size, workers=workers)
        loader.set_epoch(0)
        self.model.eval()
        for batch in loader:
            logits = self.model(batch.views[0].to(self.device)).float().cpu()
            yield logits if self.decision is None else torch.from_numpy(self.decision.apply(logits.numpy()))

    def _unlabelled(self, sources: Sequence[str | NDArray[np.uint8]]) -> UnlabelledImages:
        size = self.saved.preprocessing.evaluation().crop.decode_size
        return UnlabelledImages(sources, channels=self.saved.in_channels, size=size)

    def _guess(self, index: int, probability: float) -> Guess:
        return Guess(self.classes[index], probability, self._group[index], self.saved.class_counts[index])

    def __repr__(self) -> str:
        return f"<Classifier {self.path}: {self._title()}>"

    def _title(self) -> str:
        model, method = self.saved.config["model"], self.saved.config["method"]
        adjusted = f", {self.decision}" if self.decision is not None else ""
        return f"{model['name']} trained with {method.get('name')}, {counted(len(self.classes), 'class')}{adjusted}"

    def _repr_html_(self) -> str:
        groups = self.class_counts.groups()
        rows = "".join(
            f"<tr><td>{group}</td><td>{counted(len(members), 'class')}</td></tr>" for group, members in groups.items()
        )
        return f"<table><caption>{html.escape(f'{self.path}: {self._title()}')}</caption>{rows}</table>"


def load(
    path: str | PathLike[str], device: torch.device | str | None = None, *, as_trained: bool = False
) -> Classifier:
    """The model of a run, or of a folder that `longtail export --format safetensors` wrote.

    Args:
        path: the folder.
        device: where it computes; defaults to an accelerator if there is one.
        as_trained: leave out what `longtail adjust` stored.

    Raises:
        DataError: there is no finished run of this version, or it is broken; the message says which.
    """
    folder = model_folder(Path(path))
    try:
        with torch.random.fork_rng(devices=[]):  # building a model draws its first weights
            saved = load_model(folder)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{folder / 'config.json'} is broken: {error}",
            "the weights cannot be used without it",
            "copy the file again from the machine that trained the run",
            code="broken-model",
        ) from error
    return Classifier(saved, Path(path), device, as_trained=as_trained)
