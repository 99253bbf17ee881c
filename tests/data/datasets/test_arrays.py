"""Sets in memory: their file layouts, their checksums, and how they are fetched."""

import gzip
import hashlib
import json
import os
import pickle
import shutil
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail._errors import DataError
from longtail.data.datasets import cifar
from longtail.data.datasets.arrays import ArraySet, Source, array_checksum
from longtail.data.datasets.cifar import (
    CIFAR10_LT,
    CIFAR100_CLASSES,
    CIFAR100_LT,
    TRAIN_BATCHES,
    official_archive,
)
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.datasets.fashion_mnist import FASHION_MNIST_LT, FILES, official_files
from longtail.data.sources import Report, SourceError
from tests.support.file_server import serving
from tests.support.silent_report import SilentReport

PER_BATCH = 20


def planes(number: int, seed: int) -> np.typing.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (number, 3072), np.uint8)


def write_cifar10(root: Path, layout: str) -> None:
    """Five training batches and a test batch of 20 images, two of each class, in either layout."""
    folder = root / ("cifar-10-batches-bin" if layout == "binary" else "cifar-10-batches-py")
    folder.mkdir(parents=True)
    for seed, name in enumerate((*TRAIN_BATCHES, "test_batch")):
        labels = [(7 * i + seed) % 10 for i in range(PER_BATCH)]
        if layout == "binary":
            rows = b"".join(bytes([y]) + x.tobytes() for y, x in zip(labels, planes(PER_BATCH, seed), strict=True))
            (folder / f"{name}.bin").write_bytes(rows)
        else:
            batch = {"data": planes(PER_BATCH, seed), "labels": labels, "batch_label": name}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


@pytest.fixture
def small(tmp_path: Path) -> ArraySet:
    """CIFAR-10 with the checksums of our small one."""
    write_cifar10(tmp_path / "true", "binary")
    arrays = CIFAR10_LT.layouts[0].read(tmp_path / "true" / "cifar-10-batches-bin")
    sums = [array_checksum(part.images, part.targets, ordered=i == 0) for i, part in enumerate(arrays)]
    return replace(CIFAR10_LT, checksums=(sums[0], sums[1]), frozen={}, sources=())


@pytest.mark.parametrize("layout", ["binary", "pickles"])
def test_cifar_is_read_from_both_layouts(small: ArraySet, tmp_path: Path, layout: str) -> None:
    write_cifar10(tmp_path / layout, layout)
    arrays = small.load(tmp_path / layout)
    assert arrays.train.images.shape == (100, 32, 32, 3)
    red, green, blue = planes(PER_BATCH, 2)[3].reshape(3, 32, 32)
    assert np.array_equal(arrays.train.images[2 * PER_BATCH + 3], np.dstack([red, green, blue]))
    assert arrays.train.targets[2 * PER_BATCH + 3] == (7 * 3 + 2) % 10
    assert len(arrays.test) == PER_BATCH


def test_cifar_100_takes_the_fine_label(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for name in ("train.bin", "test.bin"):
        rows = [bytes([coarse, 99 - coarse]) + planes(1, coarse).tobytes() for coarse in range(5)]
        (folder / name).write_bytes(b"".join(rows))
    arrays = CIFAR100_LT.layouts[0].read(folder)
    assert arrays.train.targets.tolist() == [99, 98, 97, 96, 95]
    (tmp_path / "py").mkdir()
    for name in ("train", "test"):
        batch = {"data": planes(2, 0), "fine_labels": [7, 8], "coarse_labels": [0, 1]}
        (tmp_path / "py" / name).write_bytes(pickle.dumps(batch, protocol=2))
    assert CIFAR100_LT.layouts[1].read(tmp_path / "py").test.targets.tolist() == [7, 8]


def test_the_classes_of_cifar_100_are_a_hundred_in_alphabetical_order() -> None:
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


def test_a_pickle_that_wants_to_run_code_is_refused(small: ArraySet, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "trapped"),)

    write_cifar10(tmp_path / "root", "pickles")
    (tmp_path / "root" / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=r"it loads posix\.mkdir, which no CIFAR file does"):
        small.load(tmp_path / "root")
    assert not (tmp_path / "trapped").exists()


def test_fashion_mnist_is_read_from_idx_files(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 28, 28), np.uint8)
    for name in ("train", "t10k"):
        content = struct.pack(">BBBBiii", 0, 0, 8, 3, 6, 28, 28) + images.tobytes()
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
        content = struct.pack(">BBBBi", 0, 0, 8, 1, 6) + bytes([3, 1, 4, 1, 5, 9])
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(content))
    arrays = FASHION_MNIST_LT.layouts[0].read(tmp_path)
    assert np.array_equal(arrays.train.images[..., 0], images)
    assert arrays.test.targets.tolist() == [3, 1, 4, 1, 5, 9]
    for path in tmp_path.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert np.array_equal(FASHION_MNIST_LT.layouts[1].read(tmp_path).test.images, arrays.test.images)


def test_the_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    arrays = DIGITS_LT.load(Path("nowhere"))
    stored = {(image * (255 / 16)).round().astype(np.uint8).tobytes() for image in load_digits().images}
    mine = [image.tobytes() for part in arrays for image in part.images]
    assert stored.issuperset(mine)
    assert len(set(mine)) == len(mine) == 1740
    pixels = arrays.train.images / 255
    assert DIGITS_LT.mean[0] == pytest.approx(pixels.mean(), abs=1e-4)
    assert DIGITS_LT.std[0] == pytest.approx(pixels.std(), abs=1e-4)


def damage(root: Path) -> None:
    batch = root / "cifar-10-batches-bin" / "data_batch_3.bin"
    content = bytearray(batch.read_bytes())
    content[1000] ^= 1
    batch.write_bytes(content)


def test_a_changed_pixel_is_noticed(small: ArraySet, tmp_path: Path) -> None:
    damage(tmp_path / "true")
    with pytest.raises(DataError, match="its training images have SHA-256") as caught:
        small.find(tmp_path / "true", None, 0)
    assert caught.value.code == "checksum-mismatch"
    assert caught.value.exit_code == 3
    assert "longtail data fetch cifar10-lt" in caught.value.fix


def test_a_truncated_file_is_noticed(small: ArraySet, tmp_path: Path) -> None:
    batch = tmp_path / "true" / "cifar-10-batches-bin" / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"the size of test_batch.bin is no multiple of 3073 bytes"):
        small.load(tmp_path / "true")


def test_the_order_of_training_images_counts_and_that_of_test_images_does_not(small: ArraySet, tmp_path: Path) -> None:
    folder = tmp_path / "true" / "cifar-10-batches-bin"
    for name, matters in (("test_batch.bin", False), ("data_batch_1.bin", True)):
        rows = np.frombuffer((folder / name).read_bytes(), np.uint8).reshape(-1, 3073)
        (folder / name).write_bytes(rows[::-1].tobytes())
        if matters:
            with pytest.raises(DataError):
                small.load(tmp_path / "true")
        else:
            small.load(tmp_path / "true")


def test_images_that_are_not_the_frozen_ones_are_refused(small: ArraySet, tmp_path: Path) -> None:
    changed = replace(small, frozen={2: "0" * 64})
    assert changed.find(tmp_path / "true", 2, seed=1).count("train")
    with pytest.raises(DataError, match="not the frozen ones"):
        changed.find(tmp_path / "true", 2, seed=0)


def test_the_second_layout_serves_if_the_first_is_damaged(small: ArraySet, tmp_path: Path) -> None:
    damage(tmp_path / "true")
    write_cifar10(tmp_path / "true", "pickles")
    assert len(small.load(tmp_path / "true").train) == 100


def good(staging: Path, root: Path, report: Report) -> None:
    del root, report
    write_cifar10(staging, "binary")


def bad(staging: Path, root: Path, report: Report) -> None:
    good(staging, root, report)
    damage(staging)


def down(staging: Path, root: Path, report: Report) -> None:
    del staging, root, report
    raise SourceError("cannot be reached")


def test_a_fetch_goes_through_its_sources_until_one_gives_the_true_images(small: ArraySet, tmp_path: Path) -> None:
    fetched = replace(small, sources=(Source("first", down), Source("second", bad), Source("third", good)), size=1)
    root = tmp_path / "new" / "root"
    assert fetched.fetch(root, SilentReport()) == "third"
    assert fetched.fetch(root, SilentReport()) == "already there"
    assert [path.name for path in root.iterdir()] == ["cifar-10-batches-bin"]


def test_a_fetch_mends_what_is_damaged_on_disk(small: ArraySet, tmp_path: Path) -> None:
    damage(tmp_path / "true")
    assert replace(small, sources=(Source("third", good),)).fetch(tmp_path / "true", SilentReport()) == "third"
    small.load(tmp_path / "true")


def test_a_fetch_that_fails_leaves_nothing_behind_and_says_what_was_tried(small: ArraySet, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(DataError, match=r"first: cannot be reached; second: .* does not hold cifar10-lt") as caught:
        replace(small, sources=(Source("first", down), Source("second", bad))).fetch(root, SilentReport())
    assert caught.value.code == "fetch-failed"
    assert list(root.iterdir()) == []


def test_cifar_comes_from_its_archive_even_if_the_connection_breaks(small: ArraySet, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "made", "pickles")
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "made" / "cifar-10-batches-py", "cifar-10-batches-py")
    content = (tmp_path / "cifar.tar.gz").read_bytes()
    root = tmp_path / "root"
    with serving({"cifar.tar.gz": content}) as server:
        source = official_archive(server.url + "cifar.tar.gz", hashlib.md5(content).hexdigest())
        fetched = replace(small, sources=(source,), size=1)
        server.limit = len(content) * 2 // 3
        with pytest.raises(DataError, match="the connection broke"):
            fetched.fetch(root, SilentReport())
        assert fetched.fetch(root, SilentReport()) == "the official archive"
        assert server.asked == [None, f"bytes={server.limit}-"]
    assert [path.name for path in root.iterdir()] == ["cifar-10-batches-py"]
    assert len(fetched.load(root).train) == 100


def test_fashion_mnist_comes_from_its_four_files(tmp_path: Path) -> None:
    files = {name: name.encode() for name in FILES}
    with serving(files) as server:
        md5s = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
        (tmp_path / "staging").mkdir()
        official_files(server.url, md5s).bring(tmp_path / "staging", tmp_path, SilentReport())
    fetched = tmp_path / "staging" / "FashionMNIST" / "raw"
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == files


def test_a_source_that_gives_something_else_is_passed_over(small: ArraySet, tmp_path: Path) -> None:
    def odd(staging: Path, root: Path, report: Report) -> None:
        del root, report
        (staging / "labels.json").read_text()

    sources = (Source("odd", odd), Source("third", good))
    assert replace(small, sources=sources).fetch(tmp_path / "root", SilentReport()) == "third"


def test_a_disk_without_room_stops_before_anything_is_fetched(small: ArraySet, tmp_path: Path) -> None:
    needed = shutil.disk_usage(tmp_path).free * 2
    with pytest.raises(DataError, match=r"MB of free space, but .* MB are needed") as caught:
        replace(small, sources=(Source("third", good),), size=needed).fetch(tmp_path / "root", SilentReport())
    assert caught.value.code == "no-space"
    assert caught.value.exit_code == 3


def test_a_disk_that_fills_up_stops_the_fetch(small: ArraySet, tmp_path: Path) -> None:
    def full(staging: Path, root: Path, report: Report) -> None:
        del root, report
        with Path("/dev/full").open("wb") as file:
            file.write(staging.name.encode())

    with pytest.raises(DataError, match="no space is left on the disk"):
        replace(small, sources=(Source("full", full), Source("third", good))).fetch(tmp_path / "r", SilentReport())


def test_the_npm_package_is_rewritten_in_the_official_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    rng = np.random.default_rng(0)
    sheet = rng.integers(0, 255, (40, 1024, 3), np.uint8)
    Image.fromarray(sheet).save(package / "test_batch.png")
    for name in TRAIN_BATCHES:
        (package / f"{name}.png").symlink_to(package / "test_batch.png")
    labels = {"train": rng.integers(0, 10, 200).tolist(), "test": rng.integers(0, 10, 40).tolist()}
    for split, values in labels.items():
        (package / f"{split}_lables.json").write_text(json.dumps(values))
    monkeypatch.setattr(cifar, "npm_package", lambda *_: package)
    CIFAR10_LT.sources[1].bring(tmp_path, tmp_path, SilentReport())
    arrays = CIFAR10_LT.layouts[0].read(tmp_path / "cifar-10-batches-bin")
    assert arrays.train.targets.tolist() == labels["train"]
    assert arrays.test.targets.tolist() == labels["test"]
    assert np.array_equal(arrays.train.images[45], sheet[5].reshape(32, 32, 3))
