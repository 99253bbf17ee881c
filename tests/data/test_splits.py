from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longtail.data.splits import checksum, exponential_counts, holdout_indices, long_tail_indices

TARGETS = np.random.default_rng(3).integers(0, 7, 2_000)


def test_each_class_keeps_as_many_images_as_asked() -> None:
    counts = exponential_counts(200, 7, 20)
    chosen = long_tail_indices(TARGETS, counts, seed=1)
    assert Counter(TARGETS[chosen].tolist()) == dict(enumerate(counts))
    assert len(np.unique(chosen)) == len(chosen)
    assert np.array_equal(chosen, np.sort(chosen))


def test_a_draw_depends_on_the_seed_alone() -> None:
    first = long_tail_indices(TARGETS, [50] * 7, seed=1)
    assert np.array_equal(first, long_tail_indices(TARGETS, [50] * 7, seed=1))
    assert not np.array_equal(first, long_tail_indices(TARGETS, [50] * 7, seed=2))


def test_a_smaller_subset_is_part_of_a_larger_one() -> None:
    small, large = (set(long_tail_indices(TARGETS, exponential_counts(200, 7, f))) for f in (100, 10))
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
    indices = long_tail_indices(targets, exponential_counts(50_000 // classes, classes, factor))
    assert checksum(indices) == frozen


def test_a_holdout_takes_its_share_of_every_class_with_two_or_more_images() -> None:
    targets = [0] * 100 + [1] * 15 + [2] * 2 + [3]
    kept, out = holdout_indices(targets, 0.1, seed=4)
    assert Counter(np.array(targets)[out].tolist()) == {0: 10, 1: 2, 2: 1}
    assert sorted([*kept, *out]) == list(range(len(targets)))


def test_a_large_holdout_never_takes_all_of_a_class() -> None:
    kept, out = holdout_indices([0, 0, 1, 1, 1], 0.99)
    assert (len(kept), len(out)) == (2, 3)


def test_a_class_with_too_few_images_keeps_them_all() -> None:
    targets = [0] * 20 + [1] * 5 + [2] * 4 + [3]
    kept, out = holdout_indices(targets, 0.1, seed=4, smallest=5)
    assert Counter(np.array(targets)[out].tolist()) == {0: 2, 1: 1}
    assert sorted([*kept, *out]) == list(range(len(targets)))
    # The larger classes give the same images whatever the smaller ones do.
    assert set(out) <= set(holdout_indices(targets, 0.1, seed=4)[1])


def test_no_holdout_is_an_empty_one() -> None:
    kept, out = holdout_indices([0, 1, 1], 0.0)
    assert (kept.tolist(), out.tolist()) == ([0, 1, 2], [])


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_impossible_fractions_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction must be at least 0 and less than 1"):
        holdout_indices([0, 1], fraction)


@pytest.mark.parametrize(
    ("max_count", "classes", "factor", "total", "largest", "smallest"),
    [
        (5000, 10, 100, 12_406, 5000, 50),
        (500, 100, 100, 10_847, 500, 5),
        (500, 100, 50, 12_608, 500, 10),
        (500, 100, 10, 19_573, 500, 50),
    ],
)
def test_exponential_counts_are_the_published_ones(
    max_count: int, classes: int, factor: float, total: int, largest: int, smallest: int
) -> None:
    counts = exponential_counts(max_count, classes, factor)
    assert (counts.total, counts[0], counts[-1]) == (total, largest, smallest)
    # The formula as the CIFAR-LT papers' code writes it, with the factor upside down.
    assert list(counts) == [int(max_count * (1 / factor) ** (k / (classes - 1))) for k in range(classes)]


def test_cifar_100_lt_has_35_many_35_medium_and_30_few_classes() -> None:
    groups = exponential_counts(500, 100, 100).groups()
    assert {group: len(members) for group, members in groups.items()} == {"many": 35, "medium": 35, "few": 30}


@pytest.mark.parametrize("factor", [1, 3, 7, 10, 49, 100])
@pytest.mark.parametrize("classes", [1, 2, 9, 100])
def test_the_exponential_profile_falls_from_the_largest_to_its_share(factor: float, classes: int) -> None:
    counts = list(exponential_counts(4900, classes, factor))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 4900
    assert len(counts) == classes
    if classes > 1:
        assert counts[-1] == int(4900 / factor + 1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((500, 10, 0.01), r"imbalance_factor must be at least 1, got 0.01 \(did you mean 100\?\)"),
        ((500, 10, float("nan")), "imbalance_factor must be at least 1, got nan"),
        ((500, 10, 501), "at most max_count = 500, got 501: the smallest class would have no image"),
        ((500, 0, 10), "num_classes must be at least 1, got 0"),
        ((0, 10, 1), "max_count must be at least 1, got 0"),
    ],
)
def test_impossible_profiles_are_refused(arguments: tuple[int, int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exponential_counts(*arguments)
