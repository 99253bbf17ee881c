"""`predictions.csv`: the logits of each test image, enough to compute every metric again.

One line per image, with the columns

    path        the image (or its index), as in the data set
    target      the true class, by name
    prediction  the predicted class, by name
    confidence  its probability, rounded, for people; not read back
    logits      all K logits, in the order of the run's classes: base64 of little-endian float32

A path or a class that a spreadsheet would take for a formula has a ' before it.

The last column keeps every bit at 5.3 bytes a logit (10,000 images of 100 classes: 5.6 MB; decimals that keep
every bit take twice that and ten times as long). In any language it is one line to decode:
`numpy.frombuffer(base64.b64decode(text), "<f4")`. Half and bfloat16 logits fit in float32 exactly; float64
ones are rounded to it.
"""

import base64
import binascii
import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from longtail._files import csv_rows, from_cell, to_cell, whole_text_file
from longtail.evaluation._arrays import Floats, Ints, as_class_names, as_logits, as_target, softmax

COLUMNS = ("path", "target", "prediction", "confidence", "logits")


@dataclass(frozen=True)
class Predictions:
    """The logits (N, K) of a run on the images `paths`, whose true classes are `target`."""

    paths: tuple[str, ...]
    target: Ints
    logits: Floats
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


def write_predictions(
    file: str | os.PathLike[str],
    *,
    paths: Sequence[str],
    target: npt.ArrayLike,
    logits: npt.ArrayLike,
    classes: Sequence[str],
) -> None:
    """Write `predictions.csv`, whole or not at all."""
    values = as_logits(logits)
    names = as_class_names(classes, num_classes=values.shape[1])
    labels = as_target(target, num_images=len(values), num_classes=len(names))
    if len(paths) != len(values):
        raise ValueError(f"paths must have one entry for each row of logits, {len(values)} in all, got {len(paths)}")
    packed = values.astype("<f4")
    confidence = softmax(values).max(axis=1)
    with whole_text_file(Path(file)) as out:
        csv_rows(out, [COLUMNS])
        # The prediction is taken after rounding to float32, so that a reader of the logits finds the same one.
        for path, label, row, predicted, probability in zip(
            paths, labels, packed, packed.argmax(axis=1), confidence, strict=True
        ):
            code = base64.b64encode(row.tobytes()).decode("ascii")
            cells = map(to_cell, (path, names[label], names[predicted]))
            csv_rows(out, [(*cells, f"{probability:.6f}", code)])


def read_predictions(file: str | os.PathLike[str], classes: Sequence[str]) -> Predictions:
    """Read `predictions.csv` of a run whose classes, in order, are `classes`.

    Raises:
        ValueError: a column is missing, a line is broken, or the file belongs to another list of classes.
    """
    names = as_class_names(classes, num_classes=len(classes))
    index = {name: k for k, name in enumerate(names)}
    paths: list[str] = []
    target: list[int] = []
    rows: list[npt.NDArray[np.float32]] = []
    with Path(file).open(encoding="utf-8", errors="surrogateescape", newline="") as source:
        reader = csv.DictReader(source)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        missing = [column for column in missing if column != "confidence"]
        if missing:
            raise ValueError(
                f"{file} must have the columns {', '.join(COLUMNS)}, but lacks {', '.join(missing)}; "
                "is it the predictions.csv of a run?"
            )
        for line in reader:
            where = f"{file}, line {reader.line_num}"
            row = _decode(line["logits"], where=where, num_classes=len(names))
            for column in ("path", "target", "prediction"):
                line[column] = from_cell(line[column] or "")
            for column in ("target", "prediction"):
                if line[column] not in index:
                    raise ValueError(f"{where}: {column} {line[column]!r} is not among the run's {len(names)} classes")
            if names[int(row.argmax())] != line["prediction"]:
                raise ValueError(
                    f"{where}: the largest logit is that of {names[int(row.argmax())]!r}, but the prediction "
                    f"is {line['prediction']!r}; the classes are in another order than in the run"
                )
            paths.append(line["path"])
            target.append(index[line["target"]])
            rows.append(row)
    if not rows:
        raise ValueError(f"{file} must hold at least one prediction, got none; the run may have been interrupted")
    logits = as_logits(np.stack(rows), name=f"logits of {file}")
    return Predictions(tuple(paths), np.array(target, dtype=np.int64), logits, names)


def _decode(text: str | None, *, where: str, num_classes: int) -> npt.NDArray[np.float32]:
    try:
        row = np.frombuffer(base64.b64decode(text or "", validate=True), dtype="<f4")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{where}: logits must be base64 of float32 ({error}); the file may be truncated") from error
    if len(row) != num_classes:
        raise ValueError(f"{where}: logits must have one number for each of {num_classes} classes, got {len(row)}")
    return row
