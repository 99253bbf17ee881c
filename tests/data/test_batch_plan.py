import numpy as np
import pytest

from longtail.data.batch_plan import BatchPlan, Last
from longtail.data.samplers import SAMPLERS, SequentialSampler


def plan(images: int, *, rank: int = 0, ranks: int = 1, batch_size: int = 16, last: Last = "drop") -> BatchPlan:
    sampler = SAMPLERS["instance"](np.zeros(images, np.int64), rank=rank, world_size=ranks)
    return BatchPlan(sampler, batch_size=batch_size, last=last)


@pytest.mark.parametrize(
    ("images", "ranks", "last", "sizes"),
    [
        (67, 1, "drop", [16, 16, 16, 16]),
        (67, 2, "drop", [8, 8, 8, 8]),
        (64, 1, "drop", [16, 16, 16, 16]),
        (9, 1, "drop", [9]),
        (9, 2, "drop", [4]),
        (67, 1, "even", [16, 16, 16, 16, 3]),
        (67, 2, "even", [8, 8, 8, 8]),
        (69, 2, "even", [8, 8, 8, 8, 2]),
        (65, 1, "even", [16, 16, 16, 16]),
    ],
)
def test_a_batch_has_the_same_number_on_each_rank_and_never_one(
    images: int, ranks: int, last: Last, sizes: list[int]
) -> None:
    for rank in range(ranks):
        found = plan(images, rank=rank, ranks=ranks, last=last)
        assert [len(key.indices) for key in found] == sizes
        assert len(found) == len(sizes)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("images", [1, 2, 11, 12, 13, 14])
def test_every_image_is_evaluated_exactly_once(images: int, ranks: int) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        sampler = SequentialSampler(np.zeros(images), rank=rank, world_size=ranks)
        found = BatchPlan(sampler, batch_size=6, last="every")
        keys = list(found)
        assert len(keys) == len(found)
        assert all(len(key.indices) for key in keys), "no rank is given an empty batch"
        seen += [index for key in keys for index in key.indices.tolist()]
    assert sorted(seen) == list(range(images))


def test_a_start_skips_whole_batches() -> None:
    found = plan(67)
    whole = [key.indices.tolist() for key in found]
    found.start = 3
    assert [key.indices.tolist() for key in found] == whole[3:]


def test_repeats_are_counted_over_all_ranks() -> None:
    sampler = SAMPLERS["class_balanced"]([0, 0, 0, 1], num_samples=12)
    keys = list(BatchPlan(sampler, batch_size=12))
    lonely = keys[0].repeats[keys[0].indices == 3]
    assert lonely.tolist() == list(range(len(lonely)))
    assert len(lonely) > 2
    halves = [
        next(
            iter(
                BatchPlan(
                    SAMPLERS["class_balanced"]([0, 0, 0, 1], num_samples=12, rank=r, world_size=2),
                    batch_size=12,
                )
            )
        )
        for r in range(2)
    ]
    assert np.array_equal(np.stack([half.repeats for half in halves], axis=1).ravel(), keys[0].repeats)


@pytest.mark.parametrize(
    ("images", "ranks", "batch_size", "message"),
    [
        (67, 2, 15, "batch_size must be a positive multiple of the number of ranks, 2, got 15"),
        (67, 1, 0, "batch_size must be a positive multiple of the number of ranks, 1, got 0"),
        (1, 1, 16, "at least two images, got 16 for 1 rank and 1 image"),
        (67, 2, 2, "at least two images, got 2 for 2 ranks and 67 images"),
    ],
)
def test_a_batch_that_cannot_be_shared_out_is_refused(images: int, ranks: int, batch_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(images, ranks=ranks, batch_size=batch_size)
