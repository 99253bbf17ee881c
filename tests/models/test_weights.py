import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from longtail.models import create_model

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
