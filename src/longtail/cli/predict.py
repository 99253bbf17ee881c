"""`longtail predict RUN IMAGES...`."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from longtail._errors import UsageError, counted
from longtail._printable import show
from longtail.training.ranges import MOST, MOST_WORKERS


def predict(
    run: Annotated[Path, Parameter(name="RUN")],
    images: Annotated[tuple[str, ...], Parameter(name="IMAGES")] = (),
    /,
    *,
    top: int = 3,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    batch_size: int = 64,
    workers: int | None = None,
    path_column: str | None = None,
    as_trained: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Classify images with the model of a run.

    An image that cannot be read is reported and left out; the others are classified, and the exit code is 3.

    Parameters
    ----------
    run
        The folder of a run, or one that `longtail export --format safetensors` wrote.
    images
        Image files, folders of images, patterns such as 'birds/*.jpg', and CSV files with a column of image files.
    top
        Number of classes for each image.
    out
        Write to this file, ending in .csv or .json, instead of printing a table.
    json
        Print JSON instead of a table.
    batch_size
        Images at a time.
    workers
        Processes that decode images (default: chosen by the number of images and cores).
    path_column
        Of a CSV, the column of image files (default: path, filename, image and the like).
    as_trained
        Predict without what `longtail adjust` stored.
    """
    if not images:
        command = shlex.join(["longtail", "predict", str(run)])
        raise UsageError("IMAGES is missing", "", f"name images or a folder: {command} birds/*.jpg")
    if top < 1 or batch_size < 1:
        name, value = ("--top", top) if top < 1 else ("--batch-size", batch_size)
        raise UsageError(f"{name} must be at least 1, got {value}")
    if workers is not None and not 0 <= workers <= MOST_WORKERS:
        raise UsageError(f"--workers must be at least 0 and at most {MOST_WORKERS}, got {workers:,}")
    if batch_size > MOST:
        raise UsageError(f"--batch-size must be at most {MOST:,}, got {batch_size:,}")
    if out is not None and out.suffix not in (".csv", ".json"):
        raise UsageError(f"--out must end in .csv or .json, got {out}", "the ending chooses the format")
    from longtail._files import write_text
    from longtail.cli.screen import Screen

    with Screen(f"classifying with {run}") as screen:
        from longtail.data.unlabelled import find_images
        from longtail.inference import load

        paths = find_images(images, path_column=path_column)
        classifier = load(run, as_trained=as_trained)
        found = classifier.predict(paths, top=top, batch_size=batch_size, workers=workers, progress=screen.advance)
    if out is not None:
        write_text(out, found.to_csv() if out.suffix == ".csv" else found.to_json())
    if json:
        show(found.to_json(), end="")
    elif out is not None:
        show(f"{counted(len(found) - len(found.unreadable), 'image')} classified: {out}")
    else:
        show("\n".join(found.lines(shutil.get_terminal_size().columns if sys.stdout.isatty() else None)))
    for image in found.unreadable:
        show(f"longtail: {image.path} cannot be read: {image.error}", file=sys.stderr)
    return 3 if found.unreadable else 0
