"""What a run leaves in its folder when it ends: predictions, diagnostics and the report made of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.data import ImageDataset, LongTailData
from longtail.evaluation import MixtureLayer, MixtureRecord, write_predictions
from longtail.training.run_folder.diagnostics import Diagnostics, worst_errors, write_diagnostics
from longtail.training.run_folder.read import PREDICTIONS
from longtail.training.run_folder.report import write_report
from longtail.training.run_folder.write import image_names

Logits = NDArray[np.float32]


def write_results(
    folder: Path,
    data: LongTailData,
    *,
    test: Logits,
    val: Logits | None = None,
    mixture: Sequence[MixtureLayer] = (),
    mixture_history: Sequence[MixtureRecord] = (),
    departures: Sequence[str] = (),
) -> None:
    """Write predictions.csv, report.html and what that is made of; `model/` must be there.

    Args:
        folder: of the run.
        data: what it was trained on.
        test: logits of the test images, in their order.
        val: logits of the validation images, if there are any: post-hoc parameters are chosen on them.
        mixture: the layers of compound batch norm.
        mixture_history: the same during training.
        departures: of the method from its paper.
    """
    _keep(folder / PREDICTIONS["test"], data.test, test, data.classes)
    if val is not None and len(val):
        _keep(folder / PREDICTIONS["val"], data.val, val, data.classes)
    errors = worst_errors(data.test, image_names(data.test), test, data.test.targets, data.classes)
    problems = [problem.message for problem in data.problems]
    write_diagnostics(folder, Diagnostics(problems, mixture, errors, mixture_history, departures))
    write_report(folder)


def _keep(file: Path, images: ImageDataset, logits: Logits, classes: Sequence[str]) -> None:
    write_predictions(file, paths=image_names(images), target=images.targets, logits=logits, classes=classes)
