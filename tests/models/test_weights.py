import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import nn

from longtail.models import create_model, load_weights

NAMES = ["resnet8", "test_resnet", "test_efficientnet", "test_vit", "deit_tiny_distilled_patch16_224"]


def saved(model: nn.Module, path: Path) -> Path:
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, path)
    return path


def head_keys(name: str) -> tuple[str, ...]:
    return {"resnet8": ("classifier.",), "test_resnet": ("fc.",), "test_efficientnet": ("classifier.",)}.get(
        name, ("head.", "head_dist.")
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_weights_come_back(name: str, tmp_path: Path) -> None:
    model = create_model(name, 7)
    again = create_model(name, 7, pretrained=saved(model, tmp_path / "model.safetensors"))
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_classes_leaves_the_whole_head_fresh(name: str, tmp_path: Path) -> None:
    model = create_model(name, 7)
    nn.init.constant_(model.get_parameter(head_keys(name)[0] + "bias"), 3.0)
    again = create_model(name, 5, pretrained=str(saved(model, tmp_path / "model.safetensors")))
    for key, value in again.state_dict().items():
        if key.startswith(head_keys(name)):
            assert value.shape[0] == 5
            assert not (value == 3).any()
        else:
            assert torch.equal(value, model.state_dict()[key]), key


def test_a_file_without_a_head_leaves_the_head_fresh(tmp_path: Path) -> None:
    model: Any = create_model("resnet8", 7)
    model.reset_classifier(0)
    again: Any = create_model("resnet8", 7, pretrained=saved(model, tmp_path / "model.safetensors"))
    assert torch.equal(again.conv.weight, model.conv.weight)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"pretrained must be an existing file, got .*nothing\.safetensors"):
        create_model("resnet8", 7, pretrained=tmp_path / "nothing.safetensors")


class Trap:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_pickle_is_refused_and_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "mark"), protocol=2))
    with pytest.raises(ValueError, match=r"pretrained must be a (file of weights alone|valid safetensors file), got "):
        create_model("resnet8", 7, pretrained=tmp_path / name)
    assert not (tmp_path / "mark").exists()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = saved(create_model("resnet8", 7), tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="pretrained must be a valid safetensors file"):
        create_model("resnet8", 7, pretrained=path)


def test_weights_of_another_model_are_refused_with_the_differences(tmp_path: Path) -> None:
    path = saved(create_model("resnet8", 7), tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"the weights of this model, got .*stage1\.1\.conv1\.weight is missing.* and \d+ more"
    ):
        create_model("resnet14", 7, pretrained=path)
    grey = saved(create_model("resnet8", 7, in_channels=1), tmp_path / "grey.safetensors")
    with pytest.raises(ValueError, match=r"conv\.weight has shape \(16, 1, 3, 3\), in the model \(16, 3, 3, 3\)$"):
        create_model("resnet8", 7, pretrained=grey)
    deeper = saved(create_model("resnet14", 7), tmp_path / "deeper.safetensors")
    with pytest.raises(ValueError, match=r"stage1\.1\.conv1\.weight is not in the model"):
        create_model("resnet8", 7, pretrained=deeper)


def equal_but_for_the_head(model: nn.Module, other: nn.Module, name: str) -> None:
    for key, value in model.state_dict().items():
        if not key.startswith(head_keys(name)):
            assert torch.equal(value, other.state_dict()[key]), key


@pytest.mark.parametrize(
    "prefix", ["module.", "model.", "backbone.", "_orig_mod.", "_orig_mod.module.", "model.backbone."]
)
@pytest.mark.parametrize("name", ["resnet8", "test_efficientnet"])
def test_the_prefix_of_a_wrapper_is_taken_away(prefix: str, name: str, tmp_path: Path) -> None:
    model = create_model(name, 7)
    torch.save({"state_dict": {prefix + key: value for key, value in model.state_dict().items()}}, tmp_path / "a.pth")
    again = create_model(name, 7, pretrained=tmp_path / "a.pth")
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


def test_the_weights_of_a_wrapped_model_are_loaded(tmp_path: Path) -> None:
    model = create_model("resnet8", 7)
    torch.save(nn.DataParallel(model).state_dict(), tmp_path / "a.pth")
    again = create_model("resnet8", 7, pretrained=tmp_path / "a.pth")
    assert torch.equal(again.get_parameter("classifier.weight"), model.get_parameter("classifier.weight"))


def test_a_head_of_another_name_is_left_out(tmp_path: Path) -> None:
    model = create_model("resnet8", 7)
    weights = {f"backbone.{key}": value for key, value in model.state_dict().items() if "classifier" not in key}
    torch.save(
        weights | {"projection.0.weight": torch.ones(64, 64), "projection.0.bias": torch.ones(64)}, tmp_path / "a.pt"
    )
    equal_but_for_the_head(model, create_model("resnet8", 7, pretrained=tmp_path / "a.pt"), "resnet8")


def test_a_head_of_another_kind_is_left_out(tmp_path: Path) -> None:
    model = create_model("resnet8", 7)
    torch.save({**model.state_dict(), "classifier.scale": torch.ones(1)}, tmp_path / "a.pt")
    again = create_model("resnet8", 7, pretrained=tmp_path / "a.pt")
    equal_but_for_the_head(model, again, "resnet8")
    assert not torch.equal(again.get_parameter("classifier.weight"), model.get_parameter("classifier.weight"))


def test_a_second_network_in_the_file_is_refused(tmp_path: Path) -> None:
    weights = create_model("resnet8", 7).state_dict()
    torch.save(weights | {f"teacher.{key}": value for key, value in weights.items()}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"got .*a\.pth: teacher\.classifier\.bias is not in the model; .* more"):
        create_model("resnet8", 7, pretrained=tmp_path / "a.pth")


def test_a_model_is_as_it_was_if_weights_do_not_fit(tmp_path: Path) -> None:
    model = create_model("resnet8", 7)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="must have the weights of this model"):
        load_weights(model, saved(create_model("resnet14", 7), tmp_path / "a.safetensors"))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_old_files_that_count_no_batches_are_loaded(tmp_path: Path) -> None:
    model = create_model("test_resnet", 7)
    weights = {key: value for key, value in model.state_dict().items() if "num_batches_tracked" not in key}
    torch.save(weights, tmp_path / "a.pth")
    equal_but_for_the_head(model, create_model("test_resnet", 7, pretrained=tmp_path / "a.pth"), "test_resnet")


@torch.no_grad()
@pytest.mark.parametrize("name", ["resnet8", "test_efficientnet", "test_vit"])
def test_a_grey_image_gives_what_it_gave_on_three_equal_channels(name: str, tmp_path: Path) -> None:
    model = create_model(name, 7, image_size=64).eval()
    grey = create_model(
        name, 7, in_channels=1, image_size=64, pretrained=saved(model, tmp_path / "a.safetensors")
    ).eval()
    images = torch.randn(2, 1, 64, 64)
    torch.testing.assert_close(grey(images), model(images.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)


def test_position_embeddings_are_resampled_as_timm_does_it(tmp_path: Path) -> None:
    model: Any = create_model("test_vit", 7, image_size=160)
    file = saved(model, tmp_path / "a.safetensors")
    smaller: Any = create_model("test_vit", 5, image_size=64, pretrained=file)
    expected = resample_abs_pos_embed(model.pos_embed, (4, 4), num_prefix_tokens=model.num_prefix_tokens)
    torch.testing.assert_close(smaller.pos_embed, expected)
    assert torch.equal(smaller.blocks[0].attn.qkv.weight, model.blocks[0].attn.qkv.weight)
    with pytest.raises(ValueError, match="must have the weights of this model"):
        create_model("vit_tiny_patch16_224", 5, pretrained=file)


def test_weights_in_half_precision_are_loaded_as_the_model_s(tmp_path: Path) -> None:
    model = create_model("resnet8", 7)
    torch.save({key: value.half() for key, value in model.state_dict().items()}, tmp_path / "a.pth")
    again = create_model("resnet8", 7, pretrained=tmp_path / "a.pth")
    weight = again.get_parameter("conv.weight")
    assert torch.equal(weight, model.get_parameter("conv.weight").half().float())
