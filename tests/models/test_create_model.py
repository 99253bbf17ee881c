import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from longtail.models import MODELS, CifarResNet, create_model, list_models

CIFAR = ["resnet8", "resnet14", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110"]
# timm's own miniatures, one of each build: convolutional, mobile, transformer.
TIMM = ["test_resnet", "test_efficientnet", "test_vit"]


def test_importing_models_imports_no_timm() -> None:
    code = "import sys, longtail.models; sys.exit('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_our_names_are_the_cifar_resnets_and_none_of_timm_s() -> None:
    assert set(MODELS) == set(CIFAR)
    assert not set(MODELS) & set(timm.list_models())
    for name in CIFAR:
        model = create_model(name, 10)
        assert isinstance(model, CifarResNet)
        assert sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules()) == int(name[6:])


@pytest.mark.parametrize("name", ["resnet8", *TIMM, "timm/test_resnet"])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_a_model_is_features_then_head(name: str, in_channels: int) -> None:
    model: Any = create_model(name, 7, in_channels=in_channels, image_size=64).eval()
    x = torch.randn(2, in_channels, 64, 64)
    logits = model(x)
    assert logits.shape == (2, 7)
    assert torch.equal(model.forward_head(model.forward_features(x)), logits)
    assert model.get_classifier().out_features == 7
    model.reset_classifier(3)
    assert model(x).shape == (2, 3)


@pytest.mark.parametrize("image_size", [64, 96])
def test_a_model_of_a_fixed_size_is_built_for_the_size_asked_for(image_size: int) -> None:
    model: Any = create_model("vit_tiny_patch16_224", 7, image_size=image_size)
    assert model.patch_embed.img_size == (image_size, image_size)
    assert model(torch.zeros(1, 3, image_size, image_size)).shape == (1, 7)


@pytest.mark.parametrize("name", ["resnet20", "test_resnet"])
def test_models_are_channels_last(name: str) -> None:
    weights = [p for p in create_model(name, 7).parameters() if p.ndim == 4 and p.shape[2] > 1]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


@pytest.mark.parametrize(
    ("name", "near"), [("resnet23", "resnet32"), ("resnet_50", "resnet50"), ("timm/resnet5O", "resnet50")]
)
def test_a_typo_gets_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"there is no model .* \(did you mean [^)]*\b{near}\b"):
        create_model(name, 10)


def test_the_list_has_ours_first_in_the_order_of_their_depth() -> None:
    names = list_models()
    assert names[:7] == CIFAR
    assert len(names) == len(set(names)) > 1000
    assert list_models("resnet3?") == ["resnet32", "resnet34"]
    assert "resnet32" not in list_models(pretrained=True)


@pytest.mark.parametrize(("name", "stride"), [("tf_efficientnet_lite0", 32), ("resnet18", 32), ("test_vit", 16)])
def test_images_smaller_than_the_stride_are_refused(name: str, stride: int) -> None:
    create_model(name, 10, image_size=stride)
    with pytest.raises(ValueError, match=f"image_size must be at least {stride} for {name}, .*, got {stride - 1}"):
        create_model(name, 10, image_size=stride - 1)


def test_our_networks_take_the_smallest_images() -> None:
    assert create_model("resnet20", 10, image_size=8)(torch.zeros(1, 3, 8, 8)).shape == (1, 10)


@pytest.mark.parametrize("argument", ["num_classes", "in_channels"])
def test_numbers_below_one_are_refused(argument: str) -> None:
    arguments: dict[str, Any] = {"num_classes": 10, "in_channels": 3} | {argument: 0}
    with pytest.raises(ValueError, match=f"{argument} must be at least 1, got 0"):
        create_model("resnet8", **arguments)


@pytest.mark.parametrize("name", ["resnet32", "beit3_giant_patch14_224"])
def test_weights_that_nobody_published_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"pretrained must be False or a file for {name}"):
        create_model(name, 10, pretrained=True)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.usefixtures("hub")
def test_without_network_the_error_says_what_to_do() -> None:
    with pytest.raises(ConnectionError, match=r"weights from huggingface.co/timm/test_resnet.*pass its path"):
        create_model("test_resnet", 10, pretrained=True)


@pytest.fixture
def published(hub: Path) -> Any:
    """A model whose weights lie in the hub's cache."""
    model = timm.create_model("test_resnet")
    repository = hub / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    save_file(model.state_dict(), snapshot / "model.safetensors")
    return model


def test_weights_of_the_hub_are_used(published: Any) -> None:
    model = create_model("test_resnet", 1000, pretrained=True)
    for key, value in model.state_dict().items():
        assert torch.equal(value, published.state_dict()[key]), key


def test_weights_of_the_hub_are_fitted_to_other_classes_and_channels(published: Any) -> None:
    model: Any = create_model("test_resnet", 10, in_channels=1, pretrained=True)
    assert model.get_classifier().out_features == 10
    grey = published.conv1[0].weight.sum(dim=1, keepdim=True)  # a grey image is three equal channels
    torch.testing.assert_close(model.conv1[0].weight, grey)
    assert torch.equal(model.layer4[0].conv1.weight, published.layer4[0].conv1.weight)


def test_weights_in_the_cache_are_used_without_being_asked_for(published: Any) -> None:
    model: Any = create_model("test_resnet", 10, pretrained=None)
    assert torch.equal(model.layer4[0].conv1.weight, published.layer4[0].conv1.weight)


@pytest.mark.usefixtures("published")
def test_a_broken_file_in_the_cache_is_named(hub: Path) -> None:
    file = next(hub.rglob("model.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors must be a valid safetensors file: .*\(delete it"):
        create_model("test_resnet", 10, pretrained=None)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["resnet8", "test_resnet"])
def test_without_weights_on_this_machine_a_model_is_random(name: str) -> None:
    torch.manual_seed(0)
    random = create_model(name, 10, pretrained=False)
    torch.manual_seed(0)
    model = create_model(name, 10, pretrained=None)
    for key, value in model.state_dict().items():
        assert torch.equal(value, random.state_dict()[key]), key
