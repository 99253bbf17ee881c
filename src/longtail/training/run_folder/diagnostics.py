"""`model/diagnostics.json`: what a report shows and only the training can tell, so that the folder alone rebuilds it.

It holds the problems found in the data, how the method departs from its paper, the method's own diagnostics in the
end and during training, and thumbnails of the test images that the model is surest of and wrong about.
"""

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from longtail._errors import DataError
from longtail._files import write_text
from longtail.data.decode_image import UNREADABLE, decode_image
from longtail.data.images import FileImages, ImageDataset
from longtail.evaluation import surest_mistakes
from longtail.evaluation.report import Thumbnail
from longtail.training.run_folder.sums import check_sum

NAME = "model/diagnostics.json"
FORMAT = 2

# The longest side of a thumbnail; pages show them at about this width.
_SIDE = 112
# Below this, an image is small enough to be kept whole, as PNG.
_SMALL = 48


@dataclass(frozen=True)
class Diagnostics:
    """What stands in the file; see `longtail.evaluation.report.Report` for the meaning of each."""

    problems: Sequence[str] = ()
    worst_errors: Sequence[Thumbnail] = ()
    records: Sequence[Mapping[str, Any]] = ()
    departures: Sequence[str] = ()


def write_diagnostics(folder: Path, found: Diagnostics) -> None:
    """Write the file of the run in `folder`."""
    content = {
        "format": FORMAT,
        "problems": list(found.problems),
        "departures": list(found.departures),
        "records": [dict(record) for record in found.records],
        "worst_errors": [
            asdict(error) | {"image": base64.b64encode(error.image).decode("ascii")} for error in found.worst_errors
        ],
    }
    (folder / NAME).parent.mkdir(exist_ok=True)
    write_text(folder / NAME, json.dumps(content, ensure_ascii=False) + "\n")


def read_diagnostics(folder: Path) -> Diagnostics:
    """Read the file of the run in `folder`; nothing where there is none."""
    file = folder / NAME
    if not file.exists():
        return Diagnostics()
    try:
        content = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
        if content["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {content['format']!r}")
        found = Diagnostics(
            problems=[str(problem) for problem in content["problems"]],
            worst_errors=[
                Thumbnail(**error | {"image": base64.b64decode(error["image"])}) for error in content["worst_errors"]
            ],
            records=[dict(record) for record in content["records"]],
            departures=[str(departure) for departure in content["departures"]],
        )
        check_sum(folder, NAME)
        return found
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        raise DataError(
            f"{file} is broken: {error}",
            "the report shows what is in it",
            "delete it to have the report without that part",
            code="broken-diagnostics",
            paths=[str(file)],
        ) from error


def worst_errors(
    images: ImageDataset,
    names: Sequence[str],
    logits: npt.NDArray[np.floating],
    target: npt.NDArray[np.int64],
    classes: Sequence[str],
    *,
    limit: int = 24,
) -> list[Thumbnail]:
    """The test images that the model is surest of and wrong about, as thumbnails."""
    found = []
    for row in surest_mistakes(logits, target, limit=limit).tolist():
        image = _pixels(images, row)
        if image is not None:
            scores = np.exp(logits[row] - logits[row].max())
            found.append(
                Thumbnail(
                    image=_shrink(image),
                    target=classes[target[row]],
                    prediction=classes[int(scores.argmax())],
                    confidence=float(scores.max() / scores.sum()),
                    path=names[row],
                )
            )
    return found


def _pixels(images: ImageDataset, index: int) -> Image.Image | None:
    """The image itself; None if its file cannot be read, where the data set would show another of its class."""
    if isinstance(images, FileImages):
        try:
            return Image.fromarray(decode_image(images.path(index), _SIDE))
        except UNREADABLE:
            return None
    pixels = images[index][0].numpy().transpose(1, 2, 0)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def _shrink(image: Image.Image) -> bytes:
    """A file of at most `_SIDE` pixels a side: JPEG, or PNG for an image that is small already."""
    out = io.BytesIO()
    longest = max(image.size)
    if longest <= _SMALL:
        factor = max(1, _SIDE // longest)  # whole pixels: a browser would blur them
        image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST).save(out, "PNG")
    else:
        image.thumbnail((_SIDE, _SIDE))
        image.save(out, "JPEG", quality=80)
    return out.getvalue()
