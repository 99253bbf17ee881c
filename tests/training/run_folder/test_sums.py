import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.training.run_folder.report import build_report
from longtail.training.run_folder.sums import NAME, RESULTS, remove_sums


@pytest.fixture
def run(digits_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits_run, tmp_path / "run"))


def test_the_digests_are_those_that_sha256sum_knows(run: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", NAME], cwd=run, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name}: OK" for name in RESULTS]


@pytest.mark.parametrize("name", RESULTS)
def test_a_changed_result_is_refused_until_its_digests_are_deleted(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    places = [found.start() for found in re.finditer(rb"\d", content) if content[found.start() - 1 :][:2] != b"e-"]
    place = random.Random(0).choice(places[len(places) // 2 :])
    digit = b"1" if content[place : place + 1] != b"1" else b"2"
    (run / name).write_bytes(content[:place] + digit + content[place + 1 :])
    with pytest.raises(DataError, match=re.escape(str(run / name))):
        build_report(run)
    remove_sums(run)
    if name == "metrics.csv":
        build_report(run)


def test_a_broken_list_of_digests_is_no_proof(run: Path) -> None:
    (run / NAME).write_bytes(b"")
    with pytest.raises(DataError, match="do not have the digest that SHA256SUMS names"):
        build_report(run)
