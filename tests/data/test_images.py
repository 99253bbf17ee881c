import io
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from longtail._errors import DataError
from longtail.data.images import ArrayImages, FileImages, ImageDataset


def files(folder: Path, number: int) -> list[str]:
    """Images of one colour each: image i is (i, i, i)."""
    names = [f"{i}.png" for i in range(number)]
    for i, name in enumerate(names):
        Image.new("RGB", (5, 4), (i, i, i)).save(folder / name)
    return names


def load(data: FileImages, workers: int) -> "DataLoader[tuple[torch.Tensor, int]]":
    # FileImages is a dataset by its methods, not by inheritance: looking at files must not import torch.
    dataset = cast("Dataset[tuple[torch.Tensor, int]]", data)
    return DataLoader(dataset, batch_size=None, num_workers=workers)


def arrays(number: int) -> ArrayImages:
    images = np.arange(number * 8 * 8 * 3, dtype=np.int64).astype(np.uint8).reshape(number, 8, 8, 3)
    return ArrayImages(images, np.arange(number) % 3)


def test_both_kinds_have_the_same_face(tmp_path: Path) -> None:
    for data in (arrays(6), FileImages(files(tmp_path, 6), [0, 1, 2] * 2, root=tmp_path)):
        assert isinstance(data, ImageDataset)
        image, target = data[4]
        assert image.dtype == torch.uint8
        assert image.shape[0] == 3
        assert target == 1
        assert data.targets.dtype == np.int64
        assert data.targets.tolist() == [0, 1, 2, 0, 1, 2]


def test_an_item_is_the_stored_pixels_with_the_channels_first() -> None:
    data = arrays(4)
    image, _ = data[2]
    assert np.array_equal(image.numpy(), np.moveaxis(data.images[2], -1, 0))


def test_changing_an_item_does_not_change_the_data() -> None:
    grey = ArrayImages(np.zeros((2, 4, 4, 1), np.uint8), [0, 1])
    grey[0][0].fill_(9)
    assert not grey.images.any()


def test_a_selection_keeps_images_and_targets_in_the_asked_order(tmp_path: Path) -> None:
    part = arrays(6).select([4, 1])
    assert np.array_equal(part.images, arrays(6).images[[4, 1]])
    assert part.targets.tolist() == [1, 1]

    chosen = FileImages(files(tmp_path, 6), range(6), root=tmp_path, size=4).select(np.array([5, 0]))
    assert [int(image[0, 0, 0]) for image, _ in (chosen[0], chosen[1])] == [5, 0]
    assert list(chosen.paths) == ["5.png", "0.png"]
    assert chosen.size == 4


@pytest.mark.parametrize(
    ("images", "targets", "message"),
    [
        (np.zeros((2, 4, 4, 3)), [0, 1], "uint8 of shape"),
        (np.zeros((2, 4, 4), np.uint8), [0, 1], "uint8 of shape"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0], "targets must be 2 integers"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0.5, 1.0], "targets must be 2 integers, got float64"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0, -1], "0 or more, got -1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    images: np.typing.NDArray[np.uint8], targets: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ArrayImages(images, targets)


def test_arrays_go_to_worker_processes_through_shared_memory() -> None:
    data = ArrayImages(np.random.default_rng(0).integers(0, 255, (4000, 32, 32, 3), np.uint8), [0] * 4000)
    stream = io.BytesIO()
    ForkingPickler(stream).dump(data)
    assert len(stream.getvalue()) < 2_000  # of 12 MB


def test_arrays_survive_an_ordinary_pickle() -> None:
    copy = pickle.loads(pickle.dumps(arrays(5)))
    assert np.array_equal(copy.images, arrays(5).images)
    assert copy.targets.tolist() == arrays(5).targets.tolist()


def test_a_list_of_files_is_pickled_as_one_block() -> None:
    data = FileImages([f"class/{i:08}.jpg" for i in range(100_000)], np.zeros(100_000, np.int64))
    stream = io.BytesIO()
    pickler = ForkingPickler(stream)
    pickler.dump(data)
    assert len(stream.getvalue()) < 100_000 * (18 + 8 + 8) + 2_000  # the names, their ends, the labels
    assert data.path(70_000) == Path("class/00070000.jpg")


def test_a_broken_file_is_replaced_by_the_next_of_its_class_and_counted_across_workers(
    tmp_path: Path,
) -> None:
    names = files(tmp_path, 200)
    for broken in (1, 3):
        (tmp_path / names[broken]).write_bytes((tmp_path / names[broken]).read_bytes()[:40])
    data = FileImages(names, np.arange(200) % 2, root=tmp_path)
    for workers in (0, 2):
        loader = load(data, workers)
        seen = [(int(image[0, 0, 0]), int(target)) for image, target in loader]
        assert seen[1] == (5, 1)
        assert seen[3] == (5, 1)
        assert [colour for colour, _ in seen[4:]] == list(range(4, 200))
        assert data.unreadable == [1, 3]


def test_the_last_image_of_a_class_is_replaced_by_its_first(tmp_path: Path) -> None:
    names = files(tmp_path, 6)
    (tmp_path / names[5]).unlink()
    data = FileImages(names, [0, 0, 1, 1, 1, 1], root=tmp_path)
    assert int(data[5][0][0, 0, 0]) == 2
    assert int(data[-1][0][0, 0, 0]) == 2


def test_more_than_one_percent_of_broken_files_stops(tmp_path: Path) -> None:
    names = files(tmp_path, 4)
    for name in names[:2]:
        (tmp_path / name).write_bytes(b"no image")
    data = FileImages(names, [0] * 4, root=tmp_path)
    with pytest.raises(DataError, match="2 of 4 images cannot be read") as caught:
        data[0]
    assert caught.value.exit_code == 3


def test_a_class_without_a_readable_image_stops_in_a_worker_with_the_same_three_lines(tmp_path: Path) -> None:
    names = files(tmp_path, 3)
    (tmp_path / names[2]).write_bytes(b"")
    data = FileImages(names, [0, 0, 1], root=tmp_path)
    for workers in (0, 1):
        with pytest.raises(DataError) as caught:
            list(load(data, workers))
        assert caught.value.what.startswith("no image of class 1 can be read, for example ")
        assert caught.value.why == "a class without images cannot be learned"
        assert caught.value.fix.endswith("longtail check DATA --full")
