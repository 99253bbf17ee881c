"""The contract of all samplers, run over the registry."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from longtail.data.samplers import SAMPLERS, EpochSampler, SequentialSampler

# One class has a single image, label 3 has none.
TARGETS = np.repeat([0, 1, 2, 4], [60, 25, 7, 1])


def build(name: str, rank: int = 0, world_size: int = 1, num_samples: int | None = None) -> EpochSampler:
    return SAMPLERS[name](TARGETS, seed=5, rank=rank, world_size=world_size, epochs=10, num_samples=num_samples)


def expected_shares(name: str, epoch: int) -> NDArray[np.float64]:
    """The papers' formulas, one class after another."""
    sizes = [60, 25, 7, 1]
    if name == "instance":
        weights = [float(n) for n in sizes]
    elif name == "class_balanced":
        weights = [1.0] * 4
    elif name == "square_root":
        weights = [n**0.5 for n in sizes]
    elif name == "reverse":
        weights = [1 / n for n in sizes]
    else:
        weights = [(1 - epoch / 10) * n / 93 + (epoch / 10) / 4 for n in sizes]
    return np.array(weights) / sum(weights)


def test_the_registry_has_the_named_samplers() -> None:
    assert {"instance", "class_balanced", "square_root", "progressive", "reverse"} <= set(SAMPLERS)


@pytest.mark.parametrize("epoch", [0, 6])
@pytest.mark.parametrize("name", list(SAMPLERS))
def test_classes_are_drawn_with_the_probability_of_the_paper(name: str, epoch: int) -> None:
    count = 93 * 100
    drawn = TARGETS[build(name, num_samples=count).order(epoch)]
    seen = np.array([(drawn == label).sum() for label in (0, 1, 2, 4)])
    assert seen.sum() == count
    assert stats.chisquare(seen, expected_shares(name, epoch) * count).pvalue > 1e-4


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_order_is_a_function_of_seed_and_epoch(name: str) -> None:
    assert np.array_equal(build(name).order(3), build(name).order(3))
    assert not np.array_equal(build(name).order(3), build(name).order(4))
    other = SAMPLERS[name](TARGETS, seed=6, epochs=10)
    assert not np.array_equal(build(name).order(3), other.order(3))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("name", list(SAMPLERS))
def test_ranks_together_see_the_batches_of_one_process(name: str, world_size: int) -> None:
    one = list(build(name))
    ranks = [list(build(name, rank, world_size)) for rank in range(world_size)]
    assert len({len(rank) for rank in ranks}) == 1
    for step in range(len(one) // 12):
        share = 12 // world_size
        together = [index for rank in ranks for index in rank[step * share : (step + 1) * share]]
        assert sorted(together) == sorted(one[step * 12 : (step + 1) * 12])


def test_ranks_are_disjoint_when_no_image_is_repeated() -> None:
    ranks = [set(build("instance", rank, 2)) for rank in range(2)]
    assert not ranks[0] & ranks[1]
    assert len(ranks[0]) == len(ranks[1]) == 46, "one of 93 images is left out"


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_an_epoch_goes_on_where_it_stopped(name: str) -> None:
    sampler = build(name, 1, 2)
    sampler.set_epoch(4)
    whole = list(sampler)
    again = build(name, 1, 2)
    again.set_epoch(4, start=17)
    assert list(again) == whole[17:]
    assert len(whole) == len(sampler)


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"instance"}))
def test_an_image_is_repeated_only_after_all_others_of_its_class(name: str) -> None:
    order = build(name, num_samples=400).order(9)
    for label in (0, 1, 2, 4):
        of_class = order[TARGETS[order] == label]
        times = np.unique(of_class, return_counts=True)[1]
        assert len(times) == min(len(of_class), np.count_nonzero(np.equal(TARGETS, label)))
        assert times.max() - times.min() <= 1


def test_a_class_of_one_image_shows_that_image_each_time() -> None:
    order = build("class_balanced", num_samples=400).order(0)
    assert set(order[TARGETS[order] == 4]) == {92}
    assert (order == 92).sum() > 50


def test_instance_shows_each_image_once() -> None:
    assert np.array_equal(np.sort(build("instance").order(0)), np.arange(93))


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_evaluation_sees_each_image_exactly_once(world_size: int) -> None:
    seen = [i for rank in range(world_size) for i in SequentialSampler(TARGETS, rank=rank, world_size=world_size)]
    assert sorted(seen) == list(range(93))
    lengths = [len(SequentialSampler(TARGETS, rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert sum(lengths) == 93


def test_a_large_set_is_ordered_quickly() -> None:
    # iNaturalist 2018's size: 8142 classes and 437,513 images; the limit of the whole suite covers the time.
    targets = np.arange(437_513) % 8142
    order = SAMPLERS["class_balanced"](targets, seed=0).order(0)
    assert len(order) == len(targets)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank must be from 0 to world_size - 1, got rank=2"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SAMPLERS["instance"](TARGETS, **arguments)


def test_no_targets_and_negative_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="targets must be one label per image"):
        SAMPLERS["instance"]([])
    with pytest.raises(ValueError, match="targets must be 0 or more, got -1"):
        SAMPLERS["instance"]([0, -1])


def test_the_progressive_sampler_asks_for_the_number_of_epochs() -> None:
    with pytest.raises(ValueError, match="epochs must be given"):
        SAMPLERS["progressive"](TARGETS)
