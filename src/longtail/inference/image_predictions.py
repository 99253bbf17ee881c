"""The predictions for images: a few classes each, with probabilities; rare classes are marked."""

import html
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from longtail._errors import counted
from longtail._files import csv_rows, to_cell
from longtail.class_counts import Group

RARE = "*"
UNSURE = " ?"
# The control characters that JSON may have as they are.
_CONTROL = re.compile("[\x7f-\x9f]")


@dataclass(frozen=True)
class Guess:
    """A class that an image may belong to.

    Args:
        name: name of the class.
        probability: 0 to 1.
        group: many, medium or few, by the class's training images.
        train: number of training images of the class.
    """

    name: str
    probability: float
    group: Group
    train: int

    @property
    def rare(self) -> bool:
        """Whether the class is few-shot: the model has seen little of it, so check such a prediction."""
        return self.group == "few"


@dataclass(frozen=True)
class ImagePrediction:
    """An image and its most probable classes, the best first.

    Args:
        path: the file.
        guesses: empty if the image could not be read.
        error: why the image could not be read; empty if it could.
        abstained: whether the best guess is too unsure to be a prediction, by the run's decision.
    """

    path: str
    guesses: tuple[Guess, ...]
    error: str = ""
    abstained: bool = False


class ImagePredictions(Sequence[ImagePrediction]):
    """One `ImagePrediction` per image, in the order of the paths; a notebook shows a table."""

    def __init__(self, images: Sequence[ImagePrediction]) -> None:
        self._images = tuple(images)

    @overload
    def __getitem__(self, index: int) -> ImagePrediction: ...
    @overload
    def __getitem__(self, index: slice) -> "ImagePredictions": ...
    def __getitem__(self, index: int | slice) -> "ImagePrediction | ImagePredictions":
        return ImagePredictions(self._images[index]) if isinstance(index, slice) else self._images[index]

    def __len__(self) -> int:
        return len(self._images)

    def __iter__(self) -> Iterator[ImagePrediction]:
        return iter(self._images)

    def __repr__(self) -> str:
        first = "; ".join(f"{image.path}: {image.guesses[0].name}" for image in self._images[:3] if image.guesses)
        return f"<{counted(len(self), 'image')}, {len(self.unreadable):,} unreadable{'; ' * bool(first)}{first}>"

    @property
    def unreadable(self) -> list[ImagePrediction]:
        """The images that could not be read."""
        return [image for image in self if image.error]

    def as_json(self) -> list[dict[str, Any]]:
        """Plain lists and dictionaries."""
        return [
            {
                "path": image.path,
                "error": image.error or None,
                "abstained": image.abstained,
                "predictions": [
                    {
                        "class": guess.name,
                        "probability": guess.probability,
                        "group": guess.group,
                        "train_images": guess.train,
                        "rare": guess.rare,
                    }
                    for guess in image.guesses
                ],
            }
            for image in self
        ]

    def to_json(self) -> str:
        """The text of a JSON file; see `as_json`."""
        text = json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n"
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

    def to_csv(self) -> str:
        """The text of a CSV file: one line per image, three columns per guess; no class where it abstained.

        A text that a spreadsheet would take for a formula has a ' before it.
        """
        most = max((len(image.guesses) for image in self), default=1) or 1
        columns = ["path", "class", "probability", "group"]
        for rank in range(2, most + 1):
            columns += [f"class_{rank}", f"probability_{rank}", f"group_{rank}"]
        text = io.StringIO()
        csv_rows(text, [[*columns, "error"]])
        for image in self:
            cells = [cell for g in image.guesses for cell in (to_cell(g.name), f"{g.probability:.6f}", g.group)]
            if image.abstained:
                cells[0] = cells[2] = ""
            empty = [""] * (3 * (most - len(image.guesses)))
            csv_rows(text, [[to_cell(image.path), *cells, *empty, to_cell(image.error)]])
        return text.getvalue()

    def lines(self, columns: int | None = None) -> list[str]:
        """A table for a terminal; rare classes have a star.

        Args:
            columns: of the terminal: where a row of the table would be longer, each class has a line of its own.
        """
        rows = [
            [image.path + UNSURE * image.abstained]
            + [f"{g.name}{RARE if g.rare else ''} {g.probability:.1%}" for g in image.guesses]
            if image.guesses
            else [image.path, "unreadable"]
            for image in self
        ]
        cells = max((len(row) for row in rows), default=0)
        widths = [max(len(row[c]) for row in rows if c < len(row)) for c in range(cells)]
        table = ["  ".join(f"{cell:<{widths[c]}}" for c, cell in enumerate(row)).rstrip() for row in rows]
        if columns is not None and max(map(len, table), default=0) > columns:
            table = [line for row in rows for line in (row[0], *(f"  {cell}" for cell in row[1:]))]
        rare = any(guess.rare for image in self for guess in image.guesses)
        if rare:
            table.append(f"{RARE} rare: a class with few training images")
        if any(image.abstained for image in self):
            table.append(f"{UNSURE.strip()} no prediction: too unsure, by what longtail adjust stored")
        return table

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(image.path)}{UNSURE * image.abstained}</td>"
            + "".join(
                f"<td>{html.escape(g.name)}{RARE if g.rare else ''} <small>{g.probability:.1%}</small></td>"
                for g in image.guesses
            )
            + (f"<td>{html.escape(image.error)}</td>" if image.error else "")
            + "</tr>"
            for image in self
        )
        return f"<table>{rows}</table>"
