import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from longtail.data.transforms.boxes import random_boxes
from longtail.data.transforms.crop import CentreCrop, PadCrop, ResizedCrop


def noise(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("size", "channels"), [(32, 3), (8, 1)])
def test_a_padded_crop_equals_torchvisions_pad_crop_and_flip(size: int, channels: int) -> None:
    images, draws = noise(60, channels, size, size), np.random.default_rng(0).random((60, 3))
    ours = PadCrop(size, 4)(images, draws)
    for image, result, (top, left, mirror) in zip(images, ours, draws, strict=True):
        expected = F.crop(F.pad(image, [4]), int(top * 9), int(left * 9), size, size)
        assert torch.equal(result, F.horizontal_flip(expected) if mirror < 0.5 else expected)


def test_every_place_of_a_padded_crop_is_drawn() -> None:
    # One white pixel in the middle tells where the crop was.
    images = torch.zeros(3000, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 255
    seen = PadCrop(9, 2, flip=False)(images, np.random.default_rng(0).random((3000, 3)))
    places, counts = np.unique(seen.flatten(1).argmax(1).numpy(), return_counts=True)
    assert len(places) == 25
    assert stats.chisquare(counts).pvalue > 1e-4


def test_without_flip_nothing_is_mirrored() -> None:
    images = noise(20, 3, 8, 8)
    assert torch.equal(PadCrop(8, 0, flip=False)(images, np.zeros((20, 3))), images)
    assert torch.equal(PadCrop(8, 0)(images, np.zeros((20, 3))), images.flip(3))


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"images must be 32 x 32 to be cropped, got \[\(30, 32\)\]"):
        PadCrop(32, 4)([noise(3, 30, 32)], np.zeros((1, 3)))


@pytest.mark.parametrize("smallest", [0.08, 0.5])
@pytest.mark.parametrize("size", [(375, 500), (500, 375), (224, 224), (40, 400), (400, 40), (1, 1)])
def test_boxes_are_distributed_as_torchvisions(size: tuple[int, int], smallest: float) -> None:
    count = 800
    ours = random_boxes(np.full((count, 2), size), np.random.default_rng(0).random((count, 22)), smallest)
    image = torch.zeros(3, *size, dtype=torch.uint8)
    torch.manual_seed(0)
    crop = v2.RandomResizedCrop(224, scale=(smallest, 1))
    drawn = [crop.make_params([image]) for _ in range(count)]
    theirs = np.array([[box[side] for side in ("top", "left", "height", "width")] for box in drawn])
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= size).all()
    for side in range(4):
        assert stats.ks_2samp(ours[:, side], theirs[:, side], method="asymp").pvalue > 1e-3
    assert stats.ks_2samp(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3], method="asymp").pvalue > 1e-3


def test_a_resized_crop_equals_torchvisions_of_the_same_box() -> None:
    images = [noise(3, 60, 80), noise(3, 90, 50), noise(3, 32, 32)]
    draws = np.random.default_rng(0).random((3, 23))
    boxes = random_boxes(np.array([[60, 80], [90, 50], [32, 32]]), draws[:, :22])
    for image, result, box, draw in zip(images, ResizedCrop(32)(images, draws), boxes, draws, strict=True):
        expected = F.resized_crop(image, *box.tolist(), size=[32, 32], antialias=True)
        assert torch.equal(result, F.horizontal_flip(expected) if draw[22] < 0.5 else expected)
    assert not torch.equal(ResizedCrop(32)(images, draws), ResizedCrop(32, scale=0.9)(images, draws))


def test_evaluation_equals_torchvisions_resize_and_centre_crop() -> None:
    images = [noise(3, 60, 80), noise(3, 90, 50)]
    expected = torch.stack([F.center_crop(F.resize(i, [36], antialias=True), [32, 32]) for i in images])
    assert torch.equal(CentreCrop(32, 36)(images, np.zeros((2, 0))), expected)


def test_evaluation_of_small_images_leaves_them_as_they_are() -> None:
    images = noise(5, 1, 8, 8)
    assert torch.equal(CentreCrop(8, 8)(images, np.zeros((5, 0))), images)
