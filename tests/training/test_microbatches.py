"""Micro-batches; ranks that agree on their number are tested in test_scale_out.py."""

from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from longtail._errors import DataError, MemoryFullError
from longtail.data.views import Batch
from longtail.training.microbatches import (
    MicroBatches,
    cut_microbatches,
    how_to_go_on,
    note_times,
    read_notes,
    remove_notes,
    write_note,
)


def batch(images: int) -> Batch:
    numbers = torch.arange(images)
    return Batch((numbers[:, None], -numbers[:, None]), numbers, numbers)


@pytest.mark.parametrize("images", range(1, 20))
def test_microbatches_have_two_images_or_more_and_lose_none(images: int) -> None:
    for number in range(1, 10):
        cuts = [cut for (cut,) in cut_microbatches((batch(images),), number)]
        assert len(cuts) == max(1, min(number, images // 2))
        assert min(len(cut.target) for cut in cuts) >= min(2, images)
        assert torch.cat([cut.target for cut in cuts]).tolist() == list(range(images))
        for cut in cuts:
            assert cut.views[1].flatten().tolist() == [-k for k in cut.target.tolist()]


def test_the_batches_of_a_step_are_cut_alike_with_what_they_carry() -> None:
    first = batch(9)._replace(extra={"partner": torch.arange(9) * 2})
    cuts = cut_microbatches((first, batch(6)), 4)
    assert [(len(a.target), len(b.target)) for a, b in cuts] == [(3, 2), (3, 2), (3, 2)]
    for cut, _ in cuts:
        assert torch.equal(cut.extra["partner"], 2 * cut.target)


def microbatches_of(folder: Path, *, batch_size: int = 64, accumulate: int = 1) -> tuple[MicroBatches, list[str]]:
    said: list[str] = []
    fabric = Fabric(accelerator="cpu", devices=1)
    return MicroBatches(batch_size, folder, fabric, said.append, first=accumulate), said


def never() -> tuple[float, int]:
    raise MemoryError


def test_batches_are_halved_three_times_in_a_run_and_not_in_each_step(tmp_path: Path) -> None:
    cuts, said = microbatches_of(tmp_path, accumulate=3)
    undone: list[int] = []
    assert cuts.work(lambda: (0.5, cuts.number) if cuts.number > 6 else never(), undone.clear) == (0.5, 12)
    with pytest.raises(MemoryFullError, match=r"in 24 micro-batches\n.*\nuse --batch-size 32"):
        cuts.work(never, lambda: undone.append(cuts.number))
    assert undone == [12]
    assert [line.split()[-2] for line in said] == ["6", "12", "24"]


def test_two_images_are_not_cut(tmp_path: Path) -> None:
    with pytest.raises(MemoryFullError, match="out of memory with 2 images a batch\n"):
        microbatches_of(tmp_path, batch_size=2)[0].work(never, lambda: None)


def test_other_errors_pass(tmp_path: Path) -> None:
    def fail() -> tuple[float, int]:
        raise RuntimeError("no matter of memory")

    with pytest.raises(RuntimeError, match="no matter of memory"):
        microbatches_of(tmp_path)[0].work(fail, lambda: None)


def test_a_start_takes_the_largest_number_that_a_rank_noted(tmp_path: Path) -> None:
    assert microbatches_of(tmp_path)[0].number == read_notes(tmp_path) == 1
    write_note(tmp_path, 0, 2)
    write_note(tmp_path, 11, 4)
    cuts, said = microbatches_of(tmp_path)
    assert cuts.number == 4
    assert said == ["out of memory: each batch is now cut into 4 micro-batches"]
    assert microbatches_of(tmp_path, accumulate=8)[0].number == 8
    remove_notes(tmp_path)
    assert microbatches_of(tmp_path)[0].number == 1
    assert not list(tmp_path.iterdir())


def test_a_note_written_again_is_news(tmp_path: Path) -> None:
    write_note(tmp_path, 0, 8)
    before = note_times(tmp_path)
    assert note_times(tmp_path) == before
    write_note(tmp_path, 0, 8)
    assert note_times(tmp_path) != before


def test_a_note_that_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "microbatches.0").write_text("many")
    with pytest.raises(DataError, match=r"microbatches\.0 must hold a number of micro-batches"):
        read_notes(tmp_path)


def test_the_user_hears_who_starts_the_ranks_again() -> None:
    folder = Path("runs/a")
    assert how_to_go_on(folder, 2, {}) == "go on with 2 micro-batches: longtail train --resume runs/a"
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "2"}
    assert how_to_go_on(folder, 4, torchrun).startswith("torchrun starts all ranks again; with --out runs/a --resume")
    last = torchrun | {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert how_to_go_on(folder, 4, last).startswith("start torchrun again: with --out runs/a --resume auto they go on")


def test_a_method_that_needs_the_whole_batch_is_never_cut(tmp_path: Path) -> None:
    cuts = MicroBatches(64, tmp_path, Fabric(accelerator="cpu", devices=1), print, allowed=False)
    with pytest.raises(MemoryFullError, match="out of memory with 64 images a batch\n"):
        cuts.work(never, lambda: None)
