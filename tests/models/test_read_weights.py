import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from longtail.models.read_weights import read_weights

WEIGHTS = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.ones(2)}


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == WEIGHTS.keys() and all(torch.equal(found[key], WEIGHTS[key]) for key in WEIGHTS)


@pytest.mark.parametrize("name", ["a.pth", "a.pt", "a.pth.tar", "a.bin", "a.ckpt"])
def test_checkpoints_of_torch_are_read(name: str, tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / name)
    assert same(read_weights(tmp_path / name))


def test_safetensors_are_read(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "a.safetensors")
    assert same(read_weights(str(tmp_path / "a.safetensors")))


@pytest.mark.parametrize(
    "content",
    [
        {"state_dict": WEIGHTS, "epoch": 3},
        {"model": WEIGHTS, "args": argparse.Namespace(lr=0.1)},
        {"model": {"state_dict": WEIGHTS}},
        {"state_dict_ema": WEIGHTS, "state_dict": {"fc.weight": torch.zeros(2, 3)}, "optimizer": {"lr": 0.1}},
    ],
)
def test_weights_are_found_within_a_checkpoint(content: dict[str, Any], tmp_path: Path) -> None:
    torch.save(content, tmp_path / "a.pth")
    assert same(read_weights(tmp_path / "a.pth"))


@pytest.mark.parametrize(
    ("content", "has"),
    [({"epoch": 3, "fifth": WEIGHTS}, "epoch, fifth"), ([1, 2], "list"), ({}, ""), (torch.zeros(2), "Tensor")],
)
def test_a_file_without_weights_is_refused(content: object, has: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=rf"must have weights, alone or under .*, got .*a\.pth with {has}$"):
        read_weights(tmp_path / "a.pth")


@pytest.mark.parametrize("content", [b"", b"not weights", b"<html></html>" * 1000])
def test_a_broken_checkpoint_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a file of weights alone, got .*a\.pth") as caught:
        read_weights(tmp_path / "a.pth")
    assert "\n" not in str(caught.value)


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes((tmp_path / "a.pth").read_bytes()[:-50])
    with pytest.raises(ValueError, match="must be a file of weights alone"):
        read_weights(tmp_path / "a.pth")


def test_a_whole_model_is_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(3, 2), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="can run code when they are loaded"):
        read_weights(tmp_path / "a.pt")
