"""What is installed: light to import, one version everywhere, and all of it in the archives that are published."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import longtail
from longtail.cli import run

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "longtail"


def test_importing_longtail_imports_no_torch() -> None:
    code = "import sys, longtail; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_submodules_are_imported_on_first_use() -> None:
    assert longtail.nn.__name__ == "longtail.nn"
    assert "nn" in dir(longtail)


def test_the_command_and_the_citation_say_the_version_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == longtail.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == longtail.__version__


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built of it without a compiler."""
    out = tmp_path_factory.mktemp("dist")
    environment = os.environ | {"LONGTAIL_KERNELS": "0"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_a_wheel_without_kernels_is_for_every_platform_and_has_all_that_is_used(archives: tuple[Path, Path]) -> None:
    assert archives[1].name == f"longtail-{longtail.__version__}-py3-none-any.whl"
    kinds = (".py", ".yaml", ".html", ".css", ".js", ".typed")
    used = {f"longtail/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*") if path.name.endswith(kinds)}
    with zipfile.ZipFile(archives[1]) as wheel:
        assert {name for name in wheel.namelist() if name.startswith("longtail/")} == used


def test_an_sdist_has_the_sources_of_the_kernels_and_no_tests(archives: tuple[Path, Path]) -> None:
    sources = {path.name for path in PACKAGE.rglob("*") if path.suffix in {".c", ".h"}}
    with tarfile.open(archives[0]) as sdist:
        names = [Path(name) for name in sdist.getnames()]
    assert sources
    assert sources <= {name.name for name in names}
    assert not any("tests" in name.parts for name in names)
