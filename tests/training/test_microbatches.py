"""MicroBatches of a batch; ranks that agree on them are tested in test_scale_out.py."""

from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from longtail._errors import DataError
from longtail.data.views import Batch
from longtail.training.memory_notes import note_times, read_notes, remove_notes, write_note
from longtail.training.microbatches import MicroBatches, cut_microbatches, how_to_go_on
from longtail.training.run_config import build_config
from longtail.training.stop_request import MemoryFullError


def batch(images: int) -> Batch:
    numbers = torch.arange(images)
    return Batch((numbers[:, None], -numbers[:, None]), numbers, numbers)


@pytest.mark.parametrize("images", range(1, 20))
def test_pieces_have_two_images_or_more_and_lose_none(images: int) -> None:
    for pieces in range(1, 10):
        parts = cut_microbatches(batch(images), pieces)
        assert len(parts) == max(1, min(pieces, images // 2))
        assert min(len(part.target) for part in parts) >= min(2, images)
        assert torch.cat([part.target for part in parts]).tolist() == list(range(images))
        for part in parts:
            assert part.views[1].flatten().tolist() == [-k for k in part.target.tolist()]


def pieces_of(folder: Path, *, batch_size: int = 64, accumulate: int = 1) -> tuple[MicroBatches, list[str]]:
    said: list[str] = []
    config = build_config({"data": "digits-lt", "batch_size": batch_size, "optim": {"accumulate": accumulate}})
    return MicroBatches(config, folder, Fabric(accelerator="cpu", devices=1), said.append), said


def never() -> tuple[float, int]:
    raise MemoryError


def test_batches_are_halved_three_times_in_a_run_and_not_in_each_step(tmp_path: Path) -> None:
    pieces, said = pieces_of(tmp_path, accumulate=3)
    undone: list[int] = []
    assert pieces.work(lambda: (0.5, pieces.number) if pieces.number > 6 else never(), undone.clear) == (0.5, 12)
    with pytest.raises(MemoryFullError, match=r"in 24 pieces\n.*\nuse --batch-size 32"):
        pieces.work(never, lambda: undone.append(pieces.number))
    assert undone == [12]
    assert [line.split()[-2] for line in said] == ["6", "12", "24"]


def test_two_images_are_not_cut(tmp_path: Path) -> None:
    with pytest.raises(MemoryFullError, match="out of memory with 2 images a batch\n"):
        pieces_of(tmp_path, batch_size=2)[0].work(never, lambda: None)


def test_other_errors_pass(tmp_path: Path) -> None:
    def fail() -> tuple[float, int]:
        raise RuntimeError("no matter of memory")

    with pytest.raises(RuntimeError, match="no matter of memory"):
        pieces_of(tmp_path)[0].work(fail, lambda: None)


def test_a_start_takes_the_largest_number_that_a_rank_noted(tmp_path: Path) -> None:
    assert pieces_of(tmp_path)[0].number == read_notes(tmp_path) == 1
    write_note(tmp_path, 0, 2)
    write_note(tmp_path, 11, 4)
    pieces, said = pieces_of(tmp_path)
    assert pieces.number == 4
    assert said == ["out of memory: batches are now worked through in 4 pieces"]
    assert pieces_of(tmp_path, accumulate=8)[0].number == 8
    remove_notes(tmp_path)
    assert pieces_of(tmp_path)[0].number == 1
    assert not list(tmp_path.iterdir())


def test_a_note_written_again_is_news(tmp_path: Path) -> None:
    write_note(tmp_path, 0, 8)
    before = note_times(tmp_path)
    assert note_times(tmp_path) == before
    write_note(tmp_path, 0, 8)
    assert note_times(tmp_path) != before


def test_a_note_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "pieces.0").write_text("many")
    with pytest.raises(DataError, match=r"pieces\.0 must hold a number of pieces"):
        read_notes(tmp_path)


def test_the_user_hears_who_starts_the_ranks_again() -> None:
    folder = Path("runs/a")
    assert how_to_go_on(folder, 2, {}) == "go on in 2 pieces: longtail train --resume runs/a"
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "2"}
    assert how_to_go_on(folder, 4, torchrun).startswith("torchrun starts all ranks again; with --out runs/a --resume")
    last = torchrun | {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert how_to_go_on(folder, 4, last).startswith("start torchrun again: with --out runs/a --resume auto they go on")
