from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longtail.data.profiles import exponential
from longtail.data.splits import checksum, holdout_indices, long_tail_indices

TARGETS = np.random.default_rng(3).integers(0, 7, 2_000)


def test_each_class_keeps_as_many_images_as_asked() -> None:
    counts = exponential(200, 7, 20)
    chosen = long_tail_indices(TARGETS, counts, seed=1)
    assert Counter(TARGETS[chosen].tolist()) == dict(enumerate(counts))
    assert len(np.unique(chosen)) == len(chosen)
    assert np.array_equal(chosen, np.sort(chosen))


def test_a_draw_depends_on_the_seed_alone() -> None:
    first = long_tail_indices(TARGETS, [50] * 7, seed=1)
    assert np.array_equal(first, long_tail_indices(TARGETS, [50] * 7, seed=1))
    assert not np.array_equal(first, long_tail_indices(TARGETS, [50] * 7, seed=2))


def test_a_smaller_subset_is_part_of_a_larger_one() -> None:
    small, large = (set(long_tail_indices(TARGETS, exponential(200, 7, f))) for f in (100, 10))
    assert small < large


def test_every_image_of_a_class_is_as_likely_as_the_others() -> None:
    drawn = Counter[int]()
    for seed in range(400):
        drawn.update(long_tail_indices(np.zeros(20, int), [5], seed=seed).tolist())
    # 400 draws of 5 from 20: 100 each, with a standard deviation of 8.7.
    assert all(abs(drawn[i] - 100) < 4.5 * 8.7 for i in range(20))


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"class_counts\[1\] must be at most 2"):
        long_tail_indices([0, 1, 1], [1, 3])


@pytest.mark.parametrize(
    ("name", "classes", "factor", "frozen"),
    [
        ("cifar10", 10, 100, "400845af9288a5702ac33cb302d05acfefeccbf1060fe48f636457942b3c3b6e"),
        ("cifar10", 10, 50, "f913ef55cdb1a838e7d0bb4794118b172bffb690587ae7e4d1012ec05d756c50"),
        ("cifar10", 10, 10, "f60c3b29fc4303f4db2f3e4fe3a7bc8c316d219037761a149bd806335f387672"),
        ("cifar100", 100, 100, "72deb2cf2a070576f11325434d77530198bbb4fe62d7b9a3165a2c379fe82e08"),
        ("cifar100", 100, 50, "b4bf602210979efb371164651d71899d6ed74f620b8731f4f32428befe961c38"),
        ("cifar100", 100, 10, "14b0d970baad25aa63d4e0cdd754ed359942a1a2ba683e287ce728efca19d16b"),
    ],
)
def test_the_index_lists_of_cifar_lt_are_frozen(name: str, classes: int, factor: int, frozen: str) -> None:
    targets = np.load(Path(__file__).parent / "cifar_train_labels.npz")[name]
    assert targets[:5].tolist() == {"cifar10": [6, 9, 9, 4, 1], "cifar100": [19, 29, 0, 11, 1]}[name]
    indices = long_tail_indices(targets, exponential(50_000 // classes, classes, factor))
    assert checksum(indices) == frozen


def test_a_holdout_takes_its_share_of_every_class_with_two_or_more_images() -> None:
    targets = [0] * 100 + [1] * 15 + [2] * 2 + [3]
    kept, out = holdout_indices(targets, 0.1, seed=4)
    assert Counter(np.array(targets)[out].tolist()) == {0: 10, 1: 2, 2: 1}
    assert sorted([*kept, *out]) == list(range(len(targets)))


def test_a_large_holdout_never_takes_all_of_a_class() -> None:
    kept, out = holdout_indices([0, 0, 1, 1, 1], 0.99)
    assert (len(kept), len(out)) == (2, 3)


def test_no_holdout_is_an_empty_one() -> None:
    kept, out = holdout_indices([0, 1, 1], 0.0)
    assert (kept.tolist(), out.tolist()) == ([0, 1, 2], [])


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction must be at least 0 and below 1"):
        holdout_indices([0, 1], fraction)
