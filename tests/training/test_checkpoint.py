import os
import pickle
from pathlib import Path

import pytest
import torch

from longtail._errors import DataError
from longtail.training.checkpoint import check_fits, load_checkpoint, read_checkpoint, save_checkpoint

CONTENT = {
    "classes": ["a", "b"],
    "config": {"model": {"name": "resnet8"}, "method": {"name": "erm"}},
    "weights": torch.arange(3),
}


def test_a_checkpoint_round_trips(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, CONTENT)
    content, remark = load_checkpoint(tmp_path)
    assert not remark
    assert torch.equal(content["weights"], torch.arange(3))


def test_the_one_before_is_kept_and_taken_when_the_last_is_broken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, CONTENT | {"step": 1})
    save_checkpoint(tmp_path, CONTENT | {"step": 2})
    assert load_checkpoint(tmp_path)[0]["step"] == 2
    last = tmp_path / "last.ckpt"
    last.write_bytes(last.read_bytes()[:100])
    content, remark = load_checkpoint(tmp_path)
    assert content["step"] == 1
    assert "is broken; going on from the checkpoint before it" in remark


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pwned",)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, write in (
        ("plain.ckpt", lambda path: path.write_bytes(pickle.dumps(Malicious()))),
        ("torch.ckpt", lambda path: torch.save({"format": 1, "x": Malicious()}, path)),
    ):
        write(tmp_path / file)
        with pytest.raises(DataError, match="more than weights and numbers"):
            read_checkpoint(tmp_path / file)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    save_checkpoint(tmp_path, CONTENT)
    file = tmp_path / "last.ckpt"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError, match="broken") as caught:
        load_checkpoint(tmp_path)
    assert caught.value.exit_code == 3


def test_bytes_that_are_no_checkpoint_are_called_broken(tmp_path: Path) -> None:
    for content in (b"broken", b"\x80\x02", b"PK\x03\x04", b"\0" * 64):
        (tmp_path / "last.ckpt").write_bytes(content)
        with pytest.raises(DataError, match="broken"):
            load_checkpoint(tmp_path)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 99}, tmp_path / "last.ckpt")
    with pytest.raises(DataError, match="format 3, got 99"):
        load_checkpoint(tmp_path)
    torch.save(torch.zeros(2), tmp_path / "last.ckpt")
    with pytest.raises(DataError, match="got 'Tensor'"):
        load_checkpoint(tmp_path)


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"last\.ckpt does not exist"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("classes", "settings", "message"),
    [
        (["a", "c"], CONTENT["config"], "other classes: 'b' where the data has 'c'"),
        (["a", "b", "c"], CONTENT["config"], "other classes: 2 where there are 3"),
        (
            ["a", "b"],
            {"model": {"name": "resnet20"}, "method": {"name": "erm"}},
            "model.name = 'resnet8', the run asks",
        ),
        (["a", "b"], {"model": {"name": "resnet8"}, "method": {"name": "erm", "loss": "x"}}, "method.loss = None"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_line(
    classes: list[str], settings: dict[str, dict[str, str]], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        check_fits(CONTENT, classes=classes, settings=settings, where="runs/a")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
