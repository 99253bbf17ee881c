"""Five folders of images with `train/` and `test/`, the same on every machine.

    plants         38 classes of leaves, 400 ... 4 training images; 30 test images each
    groceries      81 classes of groceries, 70 ... 16 training images, with its official val/ and test/
    cifar100-lt    100 classes of 32 px photographs, 500 ... 5 training images: the index list of `cifar100-lt:100`
                   of seed 0, as PNG; 20 test images a class, drawn once
    digits-lt      10 classes of 8 px digits, 120 ... 1 training images: `digits-lt:100` of seed 0, as PNG
    clothes-lt     10 classes of 28 px pictures of clothes, 600 ... 6 training images: a tenth of `fashion-mnist-lt:100`
                   of seed 0, as PNG; 100 test images a class, drawn once

    python -m benchmarks.studies.folders.make_folders DEST --shared SHARED

SHARED holds `data/plants.tar`, `data/groceries.tar` and `data/cifar100/unpack.py`. A folder that is there is kept. The
SHA-256 printed is of the list of files with the SHA-256 of each: of its bytes, and for PNG of its pixels, because
encoders differ.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from benchmarks.studies.compound_bn import reduced_datasets
from longtail.data import ArrayImages, open_dataset
from longtail.data.splits import long_tail_indices

TEST_EACH = 20
SPLITS = ("train", "val", "test")


def write_images(images: ArrayImages, classes: tuple[str, ...], folder: Path) -> None:
    """Write each image as a PNG, in the folder of its class, by its number."""
    places = [folder / name.replace("/", "-") for name in classes]
    for place in places:
        place.mkdir(parents=True)
    for number, (pixels, label) in enumerate(zip(images.images, images.targets, strict=True)):
        Image.fromarray(pixels.squeeze()).save(places[label] / f"{number:05d}.png")


def make_archived(name: str, dest: Path, shared: Path) -> None:
    """Plants and groceries: unpack the archive, whose one folder has the splits."""
    with tarfile.open(shared / "data" / f"{name}.tar") as archive:
        archive.extractall(dest.parent, filter="data")
    (dest.parent / name).rename(dest)


def make_cifar100(dest: Path, shared: Path) -> None:
    """CIFAR-100-LT at imbalance 100, with a part of the test images."""
    with tempfile.TemporaryDirectory() as root:
        subprocess.run([sys.executable, shared / "data" / "cifar100" / "unpack.py", root], check=True)
        make_named("cifar100-lt:100", dest, root=Path(root), test_each=TEST_EACH)


def make_digits(dest: Path, shared: Path) -> None:
    """Digits-LT at imbalance 100, with all test images."""
    del shared
    make_named("digits-lt:100", dest)


def make_clothes(dest: Path, shared: Path) -> None:
    """A tenth of Fashion-MNIST-LT at imbalance 100, with a part of the test images."""
    del shared
    reduced_datasets.register()
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(
            [sys.executable, "-m", "longtail", "data", "fetch", "fashion-mnist-lt", "--root", root], check=True
        )
        make_named("fashion-mnist-lt-tenth:100", dest, root=Path(root), test_each=5 * TEST_EACH)


def make_named(name: str, dest: Path, *, root: Path | None = None, test_each: int | None = None) -> None:
    """A named set as a folder, with `test_each` test images of each class or all."""
    data = open_dataset(name, root=root, seed=0)
    train, test = data.train, data.test
    if not (isinstance(train, ArrayImages) and isinstance(test, ArrayImages)):
        raise TypeError(f"{name} must be held in memory to be written as files, got {type(train).__name__}")
    if test_each is not None:
        test = test.select(long_tail_indices(test.targets, [test_each] * len(data.classes), seed=0))
    write_images(train, data.classes, dest / "train")
    write_images(test, data.classes, dest / "test")


MAKERS: dict[str, Callable[[Path, Path], None]] = {
    "plants": lambda dest, shared: make_archived("plants", dest, shared),
    "groceries": lambda dest, shared: make_archived("groceries", dest, shared),
    "cifar100-lt": make_cifar100,
    "digits-lt": make_digits,
    "clothes-lt": make_clothes,
}


def checksum(folder: Path) -> str:
    """SHA-256 of the files' paths and contents, in the order of the paths."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{_content(path)}  {path.relative_to(folder).as_posix()}\n".encode())
    return total.hexdigest()


def _content(path: Path) -> str:
    if path.suffix != ".png":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with Image.open(path) as image:
        return hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()


def class_sizes(split: Path) -> dict[str, int]:
    """The number of images of each class, by name."""
    return {path.name: sum(1 for _ in path.iterdir()) for path in sorted(split.iterdir()) if path.is_dir()}


def summary(folder: Path) -> str:
    """Images, classes and checksum of a folder, in a line."""
    parts = []
    for split in SPLITS:
        if (folder / split).is_dir():
            sizes = class_sizes(folder / split).values()
            parts.append(f"{split} {sum(sizes)} ({max(sizes)} ... {min(sizes)})")
    classes = len(class_sizes(folder / "train"))
    return f"{folder.name}: {classes} classes, {', '.join(parts)}, sha256 {checksum(folder)}"


def main() -> None:
    """Make what is not there yet, and print what is there."""
    parser = argparse.ArgumentParser(description="Make the folders of the study.")
    parser.add_argument("dest", type=Path)
    parser.add_argument("--shared", type=Path, required=True, help="the folder that holds data/plants.tar and others")
    parser.add_argument("--sets", nargs="+", choices=MAKERS, default=list(MAKERS))
    options = parser.parse_args()
    options.dest.mkdir(parents=True, exist_ok=True)
    for name in options.sets:
        if not (options.dest / name).is_dir():
            with tempfile.TemporaryDirectory(dir=options.dest) as staging:
                made = Path(staging) / "made"
                MAKERS[name](made, options.shared)
                shutil.move(made, options.dest / name)
        print(summary(options.dest / name), flush=True)


if __name__ == "__main__":
    main()
