"""Files that are broken in seeded ways: lists, descriptions of models, checkpoints and images."""

import csv
import io
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, features

from longtail.training.seal import seal_object, seal_zip

# What takes the place of a part of a structure.
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1,
        10**9,
        10**30,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\x1b[31m",
        "a\rb",
        "../x",
        "\ud800",
    ),
    *([], [1], ["a", ["b"]], {}, {"name": "x"}, {"a": {"b": 1}}, [None], "erm", "resnet8", 2**63, -(2**70), "\0"),
)
_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252")
_PIECES = (
    b"\0",
    b"\xff\xfe",
    b"\r",
    b"\n",
    b'"',
    b",",
    b";",
    b"\x1b[2J",
    b"=",
    b"=1+1",
    b"\xef\xbb\xbf",
    b"{",
    b"[",
    b"NaN",
)
_FORMATS = (
    "png",
    "jpeg",
    "webp",
    "gif",
    "tiff",
    "bmp",
    "ppm",
    "jpeg2000",
    "dds",
    "avif",
    "ico",
    "tga",
    "pcx",
    "sgi",
    "icns",
)
_ENDINGS = {"jpeg2000": "jp2", "jpeg": "jpg", "tiff": "tif"}


def break_bytes(draw: random.Random, content: bytes) -> bytes:
    """Bits flipped, bytes cut, doubled or put in."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        place = draw.randrange(len(data) + 1)
        way = draw.randrange(6)
        if way == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif way == 1:
            del data[place : place + draw.choice([1, 2, 4, 100])]
        elif way == 2:
            data[place:place] = draw.choice(_PIECES)
        elif way == 3:
            data[place : place + 4] = draw.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
        elif way == 4:
            data[place:place] = data[place : place + draw.randrange(200)]
        elif draw.random() < 0.2:
            del data[place:]
    return bytes(data)


def break_text(draw: random.Random, content: bytes) -> bytes:
    """Cells and lines of a text changed, moved or encoded anew."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(draw.choice([1, 2, 5])):
        number = draw.randrange(len(lines))
        way = draw.randrange(5)
        if way == 0:
            cells = lines[number].split(",")
            cells[draw.randrange(len(cells))] = str(draw.choice(ODD))
            lines[number] = ",".join(cells)
        elif way == 1:
            lines.insert(number, lines[draw.randrange(len(lines))])
        elif way == 2 and len(lines) > 1:
            del lines[number]
        elif way == 3:
            key, colon, _ = lines[number].partition(": ")
            lines[number] = key + colon + str(draw.choice(ODD))
        else:
            lines[number] += draw.choice([",", ",x", ":", " #", "\r", "\t", '"', "'"])
    encoding = draw.choice(_ENCODINGS) if draw.random() < 0.1 else "utf-8"
    return "\n".join(lines).encode(encoding, "replace")


def break_csv(draw: random.Random, images: Path) -> bytes:
    """A list of images that is wrong somewhere."""
    files = [str(file.relative_to(images)) for file in sorted(images.rglob("*.png"))]
    rows: list[list[str]] = [["path", "label", "split"]]
    splits = ["train", "train", "test", "val", ""]
    rows += [[name, name.partition("/")[0], draw.choice(splits)] for name in files * draw.choice([1, 1, 2])]
    for _ in range(draw.choice([0, 1, 1, 3])):
        row = draw.choice(rows)
        if row:
            odd = draw.choice([*ODD, "=cmd()", "/dev/zero", ".", "tit", "/" * 5000, "a\nb", "a" * 140_000])
            row[draw.randrange(len(row))] = str(odd)
        if draw.random() < 0.2:
            rows.insert(draw.randrange(len(rows)), draw.choice([[], ["x"], ["x"] * 9, row]))
    text = io.StringIO()
    csv.writer(text, delimiter=draw.choice(",,,,;\t|"), lineterminator=draw.choice(["\n", "\r\n", "\r"])).writerows(
        rows
    )
    encoding = draw.choice(_ENCODINGS) if draw.random() < 0.3 else "utf-8"
    content = text.getvalue().encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")
    return break_bytes(draw, content) if draw.random() < 0.4 else content


def break_list(draw: random.Random, place: Path) -> None:
    """A root of ImageNet-LT whose lists are wrong somewhere."""
    for name in ("ImageNet_LT_train.txt", "ImageNet_LT_val.txt", "ImageNet_LT_test.txt"):
        rows = [f"train/n{k:08d}/{i}.JPEG {k}" for k in range(draw.choice([1, 2, 5])) for i in range(3)]
        for _ in range(draw.choice([0, 1, 3])):
            number = draw.randrange(len(rows))
            odd = draw.choice(
                ["", " ", "x", "x -1", "x 1000", "x ²", "x ٣", "x 1e3", "x 0x1", "\x1b[31m 0", "x  1", "\0 0"]
            )
            rows[number] = odd
        content = "\n".join(rows).encode(draw.choice(_ENCODINGS) if draw.random() < 0.4 else "utf-8", "replace")
        if draw.random() < 0.95:
            (place / name).write_bytes(break_bytes(draw, content) if draw.random() < 0.5 else content)


def break_description(draw: random.Random, file: Path) -> None:
    """A config.json with other parts, sealed anew in most cases, so that the digest does not give it away."""
    content = file.read_bytes()
    if draw.random() < 0.2:
        file.write_bytes(draw.choice([break_bytes, break_text])(draw, content))
        return
    description = json.loads(content)
    for _ in range(draw.choice([1, 1, 2])):
        description = break_structure(draw, description)
    if isinstance(description, dict):
        description = seal_object({key: value for key, value in description.items() if key != "sha256"})
    file.write_text(json.dumps(description), "utf-8", "surrogatepass")


def break_structure(draw: random.Random, value: Any) -> Any:
    """The same structure with something odd in one place."""
    if isinstance(value, Mapping) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        rest = dict(value)
        way = draw.random()
        if way < 0.1:
            del rest[key]
        elif way < 0.15:
            rest[str(draw.choice(ODD))] = draw.choice(ODD)
        else:
            rest[key] = break_structure(draw, rest[key])
        return rest
    if isinstance(value, list) and value and draw.random() < 0.7:
        rest_of = list(value)
        number = draw.randrange(len(rest_of))
        if draw.random() < 0.2:
            del rest_of[number]
        else:
            rest_of[number] = break_structure(draw, rest_of[number])
        return rest_of
    if isinstance(value, torch.Tensor) and draw.random() < 0.7:
        odd = draw.choice(["nan", "shape", "type", "empty"])
        if odd == "nan" and value.is_floating_point():
            return torch.full_like(value, float("nan"))
        return {"shape": torch.zeros(3, 5, 7), "type": value.to(torch.int16), "empty": value.new_empty(0)}.get(odd)
    return draw.choice(ODD)


def break_checkpoint(draw: random.Random, file: Path) -> None:
    """A checkpoint with odd parts, sealed anew in most cases."""
    if draw.random() < 0.1:
        file.write_bytes(break_bytes(draw, file.read_bytes()))
        return
    state = torch.load(file, weights_only=True)
    for _ in range(draw.choice([1, 1, 2])):
        state = break_structure(draw, state)
    packed = io.BytesIO()
    torch.save(state, packed)
    file.write_bytes(seal_zip(packed.getvalue()))


def break_image(draw: random.Random, folder: Path, number: int) -> None:
    """An image of any format, broken."""
    form = draw.choice(_FORMATS)
    mode = draw.choice(["RGB", "RGB", "L", "RGBA", "P", "1", "I;16", "CMYK", "F", "LA", "YCbCr", "I"])
    side = draw.choice([1, 2, 16, 33])
    pixels = np.frombuffer(draw.randbytes(side * side * 3), np.uint8).reshape(side, side, 3)
    packed = io.BytesIO()
    try:
        image = Image.fromarray(pixels)
        image = image.convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
        exif = Image.Exif()
        exif[0x0112] = draw.choice([1, 6, 8, 99])
        image.save(packed, form, **({"exif": exif} if form in ("jpeg", "png", "webp") else {}))
    except (OSError, ValueError, KeyError, SystemError):
        packed = io.BytesIO()
        Image.fromarray(pixels).save(packed, "avif" if form == "avif" and features.check("avif") else "png")
    content = packed.getvalue()
    if draw.random() < 0.9:
        content = break_bytes(draw, content)
    ending = draw.choice([_ENDINGS.get(form, form), "png", "jpg"])
    name = draw.choice([f"x{number}", f"x{number}", f"\x1b[31mx{number}", f"=x{number}", f"x\r{number}"])
    (folder / f"{name}.{ending}").write_bytes(content)
