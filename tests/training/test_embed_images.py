"""Embeddings equal what the network itself gives, image by image, plain or mirrored."""

from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.data.embedding_cache import EmbeddingCache
from longtail.data.images import ArrayImages
from longtail.data.preprocessing import Preprocessing
from longtail.models import create_model
from longtail.models.stage_feature_net import StageFeatureNet
from longtail.training.embed_images import embed_images

SEEN = Preprocessing(32, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), resized=False, policy="imagenet", whole=True)


@pytest.fixture
def images() -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 32, 32, 3), np.uint8)
    return ArrayImages(pixels, np.arange(21) % 3)


@pytest.fixture
def net() -> StageFeatureNet:
    torch.manual_seed(0)
    return StageFeatureNet(create_model("resnet8", 3), 3, image_size=32).eval()


def by_hand(net: StageFeatureNet, images: ArrayImages) -> torch.Tensor:
    x = torch.from_numpy(images.images).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        return torch.cat([net.stage_features((one[None] - 0.5) / 0.2) for one in x])


def test_features_are_those_of_the_network_one_image_at_a_time(net: StageFeatureNet, images: ArrayImages) -> None:
    torch.testing.assert_close(embed_images(net, images, SEEN), by_hand(net, images), rtol=1e-3, atol=1e-4)


def test_mirrored_features_are_those_of_mirrored_images(net: StageFeatureNet, images: ArrayImages) -> None:
    mirrored = ArrayImages(np.ascontiguousarray(images.images[:, :, ::-1]), images.targets)
    found = embed_images(net, images, SEEN, mirrored=True)
    torch.testing.assert_close(found, by_hand(net, mirrored), rtol=1e-3, atol=1e-4)


def test_the_cache_gives_back_the_same_rows(net: StageFeatureNet, images: ArrayImages, tmp_path: Path) -> None:
    first = embed_images(net, images, SEEN, cache=EmbeddingCache({"a": 1}, tmp_path))
    done: list[int] = []
    again = embed_images(
        net, images, SEEN, cache=EmbeddingCache({"a": 1}, tmp_path), progress=lambda so_far, _: done.append(so_far)
    )
    assert torch.equal(first, again)
    assert done == []
