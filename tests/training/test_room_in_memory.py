import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from longtail._errors import MemoryFullError, UsageError
from longtail.training.room_in_memory import refuse_large_batch, refuse_many_scores, room_in_memory
from longtail.training.settings import layer_settings


def test_the_room_is_that_of_the_machine_or_a_limit() -> None:
    assert 0 < room_in_memory() <= psutil.virtual_memory().total
    program = "from longtail.training.room_in_memory import room_in_memory; print(room_in_memory())"
    limited = f"ulimit -v 4000000; exec {sys.executable} -c '{program}'"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 4_000_000 * 1024


def test_scores_of_too_many_images_and_classes_are_refused_before_any_work() -> None:
    refuse_many_scores(50_000, 1000)  # ImageNet
    with pytest.raises(MemoryFullError, match=r"10,000,000 images for 1,000,000 classes take [\d,.]+ GiB"):
        refuse_many_scores(10_000_000, 1_000_000)
    with pytest.raises(MemoryFullError, match="1 image for 10,000,000 classes"):
        refuse_many_scores(1, 10_000_000)  # a confusion matrix


def test_a_batch_that_cannot_fit_is_refused_before_any_work() -> None:
    refuse_large_batch(128, 3, 224)
    with pytest.raises(MemoryFullError, match="a batch of 1,000,000 images at 4096 px takes") as caught:
        refuse_large_batch(1_000_000, 3, 4096)
    assert "--batch-size 125000" in caught.value.fix


def test_settings_of_a_few_lines_that_stand_for_billions_are_refused(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for old, new in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]")
    file = tmp_path / "settings.yaml"
    file.write_text("\n".join([*lines, "method: {name: erm, loss: *i}"]))
    with pytest.raises(UsageError, match="stands for more than 10,000 values"):
        layer_settings({}, config=file)
