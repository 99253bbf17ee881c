"""Fashion-MNIST-LT: 60,000 training and 10,000 test pictures of clothes, 28x28, grey (Xiao et al., 2017).

Read from the four IDX files, gzipped or unpacked, in torchvision's folder or where Debian's
`dataset-fashion-mnist` puts them. Grey stays one channel.
"""

import gzip
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longtail.data.datasets.arrays import Arrays, ArraySet, Layout, Source
from longtail.data.datasets.base import DATASETS
from longtail.data.images import ArrayImages
from longtail.data.sources import Report, SourceError
from longtail.data.sources.download import download
from longtail.data.sources.package import debian_package

# The files with their published MD5.
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
FOLDER = "FashionMNIST/raw"
DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of bytes, gzipped or not: two zeros, 8, the number of axes, their lengths, the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError) as error:
        raise SourceError(f"{path.name} is not a complete gzip file: {error}") from error
    if content[:3] != b"\0\0\x08":
        raise SourceError(f"{path.name} is not an IDX file of bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if values.size != shape.prod():
        raise SourceError(f"{path.name} has {values.size} values, not the {shape.prod()} it announces")
    return values.reshape(shape)


def _read(folder: Path, ending: str = ".gz") -> Arrays:
    def part(name: str) -> ArrayImages:
        images, labels = (read_idx(folder / f"{name}-{kind}-ubyte{ending}") for kind in ("images-idx3", "labels-idx1"))
        return ArrayImages(images[..., None].copy(), labels.astype(np.int64))

    return Arrays(part("train"), part("t10k"))


def official_files(url: str, md5s: Mapping[str, str]) -> Source:
    """The authors' four files, those that torchvision downloads."""

    def bring(staging: Path, root: Path, report: Report) -> None:
        parts = root / ".downloads"
        for name, md5 in md5s.items():
            if not (parts / name).exists():
                download(url + name, parts / name, md5, report)
        (staging / FOLDER).mkdir(parents=True)
        for name in md5s:
            (parts / name).rename(staging / FOLDER / name)

    return Source("the official files", bring)


def _debian(staging: Path, root: Path, report: Report) -> None:
    del root
    unpacked = debian_package("dataset-fashion-mnist", staging, report) / DEBIAN_FOLDER
    if not unpacked.is_dir():
        raise SourceError("the package does not hold the images")
    (staging / FOLDER).parent.mkdir(parents=True)
    unpacked.rename(staging / FOLDER)


FASHION_MNIST_LT = ArraySet(
    name="fashion-mnist-lt",
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    mean=(0.2860,),
    std=(0.3530,),
    imbalance_factor=100,
    checksums=(
        "6d226526ff970f03ea8725a39e125b1ab590f498a25f501e69a46359e7478773",
        "b73438e78d64c9f337edad19c3eea888b49d646dbe27b46e4e3177218f3581e7",
    ),
    layouts=(
        Layout(FOLDER, tuple(FILES), _read),
        Layout(FOLDER, tuple(name.removesuffix(".gz") for name in FILES), partial(_read, ending="")),
        Layout(f"/{DEBIAN_FOLDER}", tuple(FILES), _read),
    ),
    sources=(
        official_files("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", FILES),
        Source("Debian's package dataset-fashion-mnist", _debian),
    ),
    size=100_000_000,
)
DATASETS.register("fashion-mnist-lt")(FASHION_MNIST_LT)
