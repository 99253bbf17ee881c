from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import mahalanobis
from scipy.stats import binom

from longtail.data import mirrored_classes as module
from longtail.data.images import ArrayImages
from longtail.data.mirrored_classes import mirrored_classes, mirrored_pairs
from longtail.data.open_dataset import take_inventory
from tests.support.drawn_signs import MIRRORED, SIGNS, draw_sign, write_sign_folders


def signs(count: int, seed: int, names: tuple[str, ...] = SIGNS) -> ArrayImages:
    draw = np.random.default_rng(seed)
    pixels = np.stack([draw_sign(name, draw) for name in names for _ in range(count)])
    return ArrayImages(pixels, np.repeat(np.arange(len(names)), count))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [12, 60])
def test_signs_to_the_left_and_to_the_right_are_found(count: int, seed: int) -> None:
    assert sorted(mirrored_classes(signs(count, seed), SIGNS)) == list(MIRRORED)


def test_image_files_are_found_as_images_in_memory_are(tmp_path: Path) -> None:
    inventory = take_inventory(write_sign_folders(tmp_path, 12))
    (tmp_path / "stop" / "003.png").write_bytes(b"broken")
    assert sorted(mirrored_classes(inventory.splits["train"], inventory.classes)) == list(MIRRORED)


@pytest.mark.parametrize("seed", range(3))
def test_signs_that_are_no_mirror_images_raise_no_alarm(seed: int) -> None:
    one_of_each = tuple(name for name in SIGNS if not name.endswith("left"))
    assert mirrored_classes(signs(40, seed, one_of_each), one_of_each) == []


def scenes(count: int, classes: int, seed: int, *, faces: float = 0.5) -> ArrayImages:
    """Smooth random images; each class has its own on top, which `faces` of its images show mirrored."""
    draw = np.random.default_rng(seed)
    falling = 1 / (1 + np.hypot(*np.meshgrid(np.fft.fftfreq(32) * 32, np.fft.fftfreq(32) * 32))) ** 1.5

    def smooth(number: int) -> NDArray[np.float64]:
        noise: NDArray[np.float64] = np.fft.ifft2(np.fft.fft2(draw.normal(size=(number, 32, 32))) * falling).real
        noise /= np.std(noise, axis=(1, 2), keepdims=True)
        return noise

    own = smooth(classes)
    images = []
    for k in range(classes):
        turned = draw.random(count) < faces
        things = np.where(turned[:, None, None], own[k, :, ::-1], own[k])
        images.append(things + 0.5 * smooth(count))
    pixels = (128 + 40 * np.concatenate(images)).clip(0, 255).astype(np.uint8)
    return ArrayImages(pixels[..., None], np.repeat(np.arange(classes), count))


@pytest.mark.parametrize("faces", [0, 0.5])
@pytest.mark.parametrize("count", [5, 40])
def test_things_that_face_both_ways_or_one_raise_no_alarm(count: int, faces: float) -> None:
    for seed in range(5):
        assert mirrored_classes(scenes(count, 30, seed, faces=faces), [str(k) for k in range(30)]) == []


def test_the_digits_raise_no_alarm() -> None:
    digits = take_inventory("digits-lt:10")
    assert mirrored_classes(digits.splits["train"], digits.classes) == []


def test_a_handful_of_images_is_not_enough_to_tell() -> None:
    assert mirrored_classes(signs(4, 0), SIGNS) == []
    assert mirrored_classes(signs(1, 0), SIGNS) == []
    assert mirrored_classes(signs(20, 0).select([]), SIGNS) == []


def test_blank_images_are_of_no_class() -> None:
    assert mirrored_classes(ArrayImages(np.zeros((40, 8, 8, 3), np.uint8), [0, 1] * 20), ["a", "b"]) == []


def test_no_more_images_are_looked_at_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[NDArray[np.int64]] = []

    def listen(_: NDArray[np.float64], targets: NDArray[np.int64]) -> list[tuple[int, int]]:
        seen.append(targets)
        return []

    monkeypatch.setattr(module, "mirrored_pairs", listen)
    names = [str(k) for k in range(500)]
    mirrored_classes(ArrayImages(np.zeros((1_000, 4, 4, 1), np.uint8), np.repeat([0, 1], 500)), names)
    mirrored_classes(ArrayImages(np.zeros((10_000, 4, 4, 1), np.uint8), np.repeat(np.arange(500), 20)), names)
    assert [np.bincount(targets).max() for targets in seen] == [40, 10]
    assert [len(targets) for targets in seen] == [80, 4_000]


def test_the_answer_does_not_depend_on_labels_or_light() -> None:
    images = signs(20, 0)
    grey = images.images.mean(3).reshape(-1, 16, 2, 16, 2).mean((2, 4))
    found = mirrored_pairs(grey, images.targets)
    assert mirrored_pairs(0.3 * grey + 40, images.targets) == found
    assert mirrored_pairs(grey, images.targets * 7 + 3) == [(a * 7 + 3, b * 7 + 3) for a, b in found]
    order = np.random.default_rng(0).permutation(len(grey))
    assert mirrored_pairs(grey[order], images.targets[order]) == found


def test_preferences_are_differences_of_mahalanobis_distances_to_the_means_of_the_others() -> None:
    draw = np.random.default_rng(0)
    images, places = draw.normal(size=(30, 16, 16)), np.repeat([0, 1, 2], [5, 10, 15])
    counts = np.bincount(places)
    plain, mirrored = module._preferences(images, places, counts)
    flat, turned = images.reshape(30, -1), images[:, :, ::-1].reshape(30, -1)
    scatter = sum(
        np.cov(view[places == k], rowvar=False) * (counts[k] - 1) for view in (flat, turned) for k in range(3)
    ) / (2 * 27)
    inverse = np.linalg.inv(scatter + 0.3 * np.trace(scatter) / 256 * np.eye(256))
    noise = sum(mahalanobis(flat[i], flat[places == places[i]].mean(0), inverse) ** 2 for i in range(30)) / 27
    for i in (0, 7, 29):
        for k in range(3):
            if k == places[i]:
                continue
            own = [j for j in np.flatnonzero(places == places[i]) if j != i]
            for view, sign, found in ((flat, 1, plain), (turned, -1, mirrored)):
                to_own = mahalanobis(view[i], flat[own].mean(0), inverse) ** 2 - noise / len(own)
                to_other = mahalanobis(view[i], flat[places == k].mean(0), inverse) ** 2 - noise / counts[k]
                assert found[i, k] == pytest.approx(sign * (to_other - to_own))


@pytest.mark.parametrize(("successes", "number"), [(0, 8), (1, 1), (17, 20), (80, 80), (55, 80)])
def test_the_tail_is_the_binomial_one(successes: int, number: int) -> None:
    assert module._tail(successes, number) == pytest.approx(binom.sf(successes - 1, number, 0.5), rel=1e-9)
