import sys
import tarfile
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.data.sources import SourceError
from longtail.data.sources.package import debian_package, npm_package
from tests.support.silent_report import SilentReport


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that is all of PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    (folder / name).chmod(0o755)


def npm_that_packs(tmp_path: Path, programs: Path, member: str) -> None:
    (tmp_path / "content").write_text("labels")
    with tarfile.open(tmp_path / "ready.tgz", "w:gz") as tar:
        tar.add(tmp_path / "content", member)
    install(
        programs,
        "npm",
        "import shutil\nassert sys.argv[1:3] == ['pack', 'data@1.0.0'] and '--ignore-scripts' in sys.argv\n"
        f"shutil.copy({str(tmp_path / 'ready.tgz')!r}, sys.argv[-1] + '/data-1.0.0.tgz')",
    )


def test_an_npm_package_is_unpacked_by_its_client(tmp_path: Path, programs: Path) -> None:
    npm_that_packs(tmp_path, programs, "package/labels.json")
    (tmp_path / "out").mkdir()
    package = npm_package("data@1.0.0", tmp_path / "out", SilentReport())
    assert (package / "labels.json").read_text() == "labels"


def test_a_package_that_reaches_outside_is_refused(tmp_path: Path, programs: Path) -> None:
    npm_that_packs(tmp_path, programs, "package/../../evil")
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="would be written outside the folder"):
        npm_package("data@1.0.0", tmp_path / "out", SilentReport())
    assert not (tmp_path / "evil").exists()


@pytest.mark.usefixtures("programs")
def test_a_client_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="npm is not installed"):
        npm_package("data@1.0.0", tmp_path, SilentReport())
    with pytest.raises(SourceError, match="apt-get is not installed"):
        debian_package("data", tmp_path, SilentReport())


def test_what_a_client_says_is_passed_on(tmp_path: Path, programs: Path) -> None:
    install(programs, "apt-get", "sys.exit('E: Unable to locate package data')")
    with pytest.raises(SourceError, match="apt-get download data failed: E: Unable to locate package data"):
        debian_package("data", tmp_path, SilentReport())


def test_a_client_that_brings_nothing_is_noticed(tmp_path: Path, programs: Path) -> None:
    install(programs, "apt-get", "")
    with pytest.raises(SourceError, match=r"expected one \*\.deb, got 0"):
        debian_package("data", tmp_path, SilentReport())
