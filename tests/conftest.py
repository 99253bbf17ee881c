"""Finished runs on the digits, made once for all tests of a process. Who changes one copies it first."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Chromium calls home unless told not to, and has no sandbox as root.
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_as_in_a_terminal() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and Python then has no handler for it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned something, with a validation split."""
    return finished(tmp_path_factory.mktemp("runs") / "digits-1", epochs=3)


@pytest.fixture(scope="session")
def idle_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, but that it has learned nothing."""
    return finished(tmp_path_factory.mktemp("runs") / "idle", epochs=1, lr=1e-9)


@pytest.fixture(scope="session")
def compound_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with compound batch norm, without a validation split."""
    return finished(tmp_path_factory.mktemp("runs") / "compound", method="compound_bn", epochs=1, val_fraction=0.0)


def finished(folder: Path, *, method: str = "erm", val_fraction: float = 0.2, **settings: Any) -> Path:
    import longtail

    longtail.train(
        "digits-lt:10",
        method=method,
        model="resnet8",
        batch_size=32,
        out=folder,
        settings={"val_fraction": val_fraction},
        show=False,
        **settings,
    )
    return folder


@pytest.fixture
def digit_files(tmp_path: Path) -> list[Path]:
    """The first test images of the digits as files."""
    from PIL import Image

    from longtail.data.datasets.digits import DIGITS_LT

    folder = tmp_path / "digits"
    folder.mkdir()
    pixels = DIGITS_LT.load(Path()).test.images[:12, :, :, 0]
    files = [folder / f"{number:02}.png" for number in range(len(pixels))]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    return files


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, as a user has it."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "there is no Chromium here: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield running
        running.close()
