import pickle

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as F

from longtail.data.images import ArrayImages
from longtail.data.preprocessing import Preprocessing
from longtail.data.random_bits import ImageDraws
from longtail.data.views import BatchKey, ViewedImages, normalise

RNG = np.random.default_rng(0)
IMAGES = ArrayImages(RNG.integers(0, 256, (50, 32, 32, 3), np.uint8), np.arange(50) % 7)
CIFAR = Preprocessing(32, (0.49, 0.48, 0.45), (0.25, 0.24, 0.26), "cifar10")


def key(*indices: int, epoch: int = 0, repeats: list[int] | None = None) -> BatchKey:
    return BatchKey(epoch, np.array(indices), np.array(repeats or [0] * len(indices)))


def two_views(seed: int = 0) -> ViewedImages:
    return ViewedImages(IMAGES, [CIFAR.weak(), CIFAR.strong()], mean=CIFAR.mean, std=CIFAR.std, seed=seed)


def test_normalising_equals_torchvisions_and_is_channels_last() -> None:
    images = torch.from_numpy(IMAGES.images).permute(0, 3, 1, 2)
    ours = normalise(images, CIFAR.mean, CIFAR.std)
    theirs = F.normalize(F.to_dtype(images, torch.float32, scale=True), list(CIFAR.mean), list(CIFAR.std))
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    assert ours.dtype == torch.float32


def test_a_batch_has_its_labels_and_indices() -> None:
    batch = two_views()[key(3, 49, 3)]
    assert batch.target.tolist() == [3, 0, 3]
    assert batch.indices.tolist() == [3, 49, 3]
    assert [view.shape for view in batch.views] == [(3, 3, 32, 32)] * 2


def test_an_image_is_seen_alike_in_any_batch() -> None:
    whole, part = two_views()[key(*range(50))], two_views()[key(41, 7)]
    for one, other in zip(whole.views, part.views, strict=True):
        assert torch.equal(one[[41, 7]], other)


@pytest.mark.parametrize("other", [key(5, epoch=1), key(5, repeats=[1])], ids=["epoch", "repeat"])
def test_an_image_is_seen_otherwise_at_another(other: BatchKey) -> None:
    assert not torch.equal(two_views()[key(5)].views[1], two_views()[other].views[1])


def test_another_seed_and_another_view_give_other_crops() -> None:
    one, other = two_views(seed=0)[key(*range(50))], two_views(seed=1)[key(*range(50))]
    assert not torch.equal(one.views[0], other.views[0])
    twice = ViewedImages(IMAGES, [CIFAR.weak()] * 2, mean=CIFAR.mean, std=CIFAR.std)[key(*range(50))]
    assert not torch.equal(*twice.views)


def test_each_purpose_has_its_own_numbers() -> None:
    draws = ImageDraws(0, 0, np.arange(4), np.zeros(4, np.int64))
    assert draws.uniform(0, 3).shape == (4, 3)
    assert not np.intersect1d(draws.uniform(0, 3), draws.uniform(1, 3)).size


def test_evaluation_is_the_normalised_image() -> None:
    seen = ViewedImages(IMAGES, [CIFAR.evaluation()], mean=CIFAR.mean, std=CIFAR.std)[key(4, 2)]
    images = torch.from_numpy(IMAGES.images[[4, 2]]).permute(0, 3, 1, 2)
    assert torch.equal(seen.views[0], normalise(images, CIFAR.mean, CIFAR.std))


def test_it_can_be_sent_to_a_process() -> None:
    again = pickle.loads(pickle.dumps(two_views()))
    assert torch.equal(again[key(1, 2)].views[1], two_views()[key(1, 2)].views[1])


def test_a_wrong_argument_is_named() -> None:
    with pytest.raises(ValueError, match="views must have at least one view"):
        ViewedImages(IMAGES, [], mean=CIFAR.mean, std=CIFAR.std)
    with pytest.raises(ValueError, match="mean must have one number per channel, 3, got 1"):
        ViewedImages(IMAGES, [CIFAR.weak()], mean=[0.5], std=[0.5])[key(0)]
