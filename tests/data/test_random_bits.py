import numpy as np
import pytest
from scipy import stats

from longtail.data.random_bits import permutation, random_bits, uniform


def test_a_number_depends_on_its_words_alone() -> None:
    whole = uniform(7, 3, np.arange(1000))
    assert np.array_equal(whole[[5, 999]], uniform(7, 3, np.array([5, 999])))
    assert whole[5] == uniform(7, 3, 5)[0]


def test_words_broadcast_like_arrays() -> None:
    table = random_bits(0, np.arange(4)[:, None], np.arange(6))
    assert table.shape == (4, 6)
    assert table[2, 3] == random_bits(0, 2, 3)[0]


@pytest.mark.parametrize("words", [(0, 0), (0, 1), (1, 0), (-1, 5), (2**62, 3)])
def test_numbers_of_neighbouring_images_are_uniform(words: tuple[int, int]) -> None:
    assert stats.kstest(uniform(*words, np.arange(20_000)), "uniform").pvalue > 1e-4


def test_numbers_of_neighbouring_seeds_epochs_and_images_are_uncorrelated() -> None:
    index = np.arange(20_000)
    base = uniform(0, 0, index, 0)
    for other in (
        uniform(1, 0, index, 0),
        uniform(0, 1, index, 0),
        uniform(0, 0, index + 1, 0),
        uniform(0, 0, index, 1),
    ):
        assert stats.pearsonr(base, other).pvalue > 1e-4


def test_the_order_of_the_words_matters() -> None:
    assert random_bits(1, 2)[0] != random_bits(2, 1)[0]


def test_one_word_gives_the_known_sequence_of_splitmix64() -> None:
    # The published first outputs of SplitMix64 with the seed 0.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert random_bits(np.arange(3)).tolist() == known


def test_numbers_are_frozen() -> None:
    # A change here would change every run that was published.
    assert random_bits(0, 0, 0)[0] == 2558736989570252433
    assert permutation(8, 0, 0).tolist() == [0, 7, 2, 5, 4, 6, 3, 1]


def test_a_permutation_has_each_number_once_and_all_places_are_alike() -> None:
    orders = np.stack([permutation(6, 0, epoch) for epoch in range(6000)])
    assert np.array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(6), orders.shape))
    seen = np.stack([np.bincount(column, minlength=6) for column in orders.T])
    assert stats.chisquare(seen, axis=1).pvalue.min() > 1e-4
