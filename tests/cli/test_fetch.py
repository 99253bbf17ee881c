import json
from dataclasses import replace
from pathlib import Path

import pytest

from longtail.cli import run
from longtail.data.datasets import DATASETS
from longtail.data.datasets.arrays import Layout, Source
from longtail.data.datasets.digits import DIGITS_LT
from longtail.data.sources import Report, SourceError
from longtail.data.sources.extract import extract_tar
from tests.support.archives import write_tar

Capture = pytest.CaptureFixture[str]
READ = DIGITS_LT.layouts[0].read


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> "pytest.MonkeyPatch":
    """Put data sets of our own in the register, and take them out again."""
    monkeypatch.setattr(DATASETS, "_units", dict(DATASETS._units))
    return monkeypatch


def down(staging: Path, root: Path, report: Report) -> None:
    del staging, root, report
    raise SourceError("cannot be reached")


def archive(staging: Path, root: Path, report: Report) -> None:
    """Brings root/archive.tgz, as a source that downloads would."""
    report.advance(1, 2)
    extract_tar(root / "archive.tgz", staging)


@pytest.mark.usefixtures("pretend")
def test_a_set_is_fetched_from_the_first_source_that_answers(tmp_path: Path, capsys: Capture) -> None:
    layout = Layout("folder", ("here",), READ)
    sources = (Source("first", down), Source("second", archive))
    DATASETS.register("mine")(replace(DIGITS_LT, name="mine", layouts=(layout,), sources=sources))
    write_tar(tmp_path / "archive.tgz", {"folder/here": b""})
    assert run(["data", "fetch", "mine", "--root", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"mine is in {tmp_path} (second)\n"
    assert "first: cannot be reached" in captured.err
    assert run(["check", "mine", "--root", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"] == 486


@pytest.mark.usefixtures("pretend")
def test_an_archive_that_reaches_outside_stops_the_fetch(tmp_path: Path, capsys: Capture) -> None:
    layout = Layout("folder", ("here",), READ)
    DATASETS.register("mine")(replace(DIGITS_LT, layouts=(layout,), sources=(Source("evil", archive),)))
    write_tar(tmp_path / "archive.tgz", {"folder/here": b"", "../../outside": b""})
    assert run(["data", "fetch", "mine", "--root", str(tmp_path / "..") + f"/{tmp_path.name}"]) == 3
    assert "archive.tgz holds '../../outside', which would be written outside" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tgz"]


@pytest.mark.usefixtures("pretend")
def test_a_disk_without_room(tmp_path: Path, capsys: Capture) -> None:
    layout = Layout("folder", ("here",), READ)
    DATASETS.register("mine")(replace(DIGITS_LT, layouts=(layout,), size=10**18))
    assert run(["data", "fetch", "mine", "--root", str(tmp_path)]) == 3
    assert "1,000,000,000,000 MB are needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("digits-lt", 0, "digits-lt is in "),
        ("cifar10", 2, "did you mean cifar10-lt?"),
        ("zebra", 2, "the names are cifar10-lt, cifar100-lt"),
        ("imagenet-lt", 3, "get it (images: image-net.org"),
    ],
)
def test_names(tmp_path: Path, capsys: Capture, name: str, code: int, message: str) -> None:
    assert run(["data", "fetch", name, "--root", str(tmp_path)]) == code
    captured = capsys.readouterr()
    assert message in (captured.err if code else captured.out)


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert run(["data", "fetch", "cifar10-lt", "--root", str(tmp_path / "file" / "root")]) == 3
    assert "Not a directory" in capsys.readouterr().err
