"""The loss and the method of another package, as docs/extending.md has them, installed for real and found by name."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from longtail.data.views import Batch
from longtail.losses import LOSSES, VSLoss
from longtail.methods import METHODS, Decoupled
from longtail.models import create_model

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "extending.md").read_text()
COUNTS = [40, 10, 2]
TARGET = torch.tensor([0, 0, 1, 2])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def files() -> dict[str, str]:
    """The code blocks that are files, by the names in their first lines."""
    named = {block: re.match(r"# their_package/(\w+\.py)\n", block) for block in blocks("python")}
    return {match[1]: block for block, match in named.items() if match}


@pytest.fixture(params=[True, False], ids=["decorated", "undecorated"])
def _their_package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs what the page shows as a distribution `their-package`."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").touch()
    for name, code in files().items():
        shown = code if request.param else re.sub(r"^@\w+\.register.*\n", "", code, flags=re.MULTILINE)
        (tmp_path / "their_package" / name).write_text(shown)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    lines = []
    for group, points in tomllib.loads(blocks("toml")[0])["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    for registry in (METHODS, LOSSES):
        units: dict[str, Any] = registry._units
        monkeypatch.setattr(registry, "_units", dict(units))  # what is found here leaves with the test
    yield
    for module in [name for name in sys.modules if name.split(".")[0] == "their_package"]:
        del sys.modules[module]


@pytest.mark.usefixtures("_their_package")
def test_they_are_listed_without_being_imported_and_then_found_by_their_names() -> None:
    assert "two_streams" in METHODS
    assert "cdt" in LOSSES
    assert not any(name.startswith("their_package") for name in sys.modules)
    assert METHODS["two_streams"].__module__ == "their_package.two_streams"
    assert LOSSES["cdt"].__module__ == "their_package.cdt"


@pytest.mark.usefixtures("_their_package")
def test_the_loss_is_vector_scaling_without_a_shift_and_erm_trains_with_it() -> None:
    (use,) = [block for block in blocks("python") if not block.startswith("#")]
    names: dict[str, Any] = {}
    exec(compile(use, "extending.md", "exec"), names)
    method = names["method"]
    assert method.settings()["loss_settings"] == {"strength": 0.2, "reduction": "mean"}
    output = method(Batch((torch.randn(4, 3, 8, 8),), TARGET, torch.arange(4)))
    oracle = VSLoss([500, 50, 5], stretch=0.2, shift=0.0)
    torch.testing.assert_close(output.loss.detach(), oracle(output.logits, TARGET))


@pytest.mark.usefixtures("_their_package")
def test_the_method_trains_alone_and_as_the_base_of_another() -> None:
    torch.manual_seed(0)
    model = create_model("resnet8", len(COUNTS)).eval()  # so that the order of passes does not matter
    batches = [Batch((torch.randn(4, 3, 8, 8),), TARGET.roll(turn), torch.arange(4)) for turn in (0, 1)]
    losses = [F.cross_entropy(model(batch.views[0]), batch.target) for batch in batches]
    settings: dict[str, Any] = {"balance": 0.8}
    method = METHODS["two_streams"](model, COUNTS, **settings)
    assert method.samplers == ("instance", "class_balanced")
    assert method.settings() == {"balance": 0.8, "view": "strong"}
    method.set_progress(0.5)
    output = method(*batches)
    torch.testing.assert_close(output.loss, 0.6 * losses[0] + 0.4 * losses[1])
    assert set(output.parts) == {"instance", "balanced"}
    stages = Decoupled(model, COUNTS, base="two_streams", base_settings=settings)
    stages.set_progress(0.4)
    torch.testing.assert_close(stages.eval()(*batches).loss, output.loss)


def test_without_the_package_the_names_are_unknown() -> None:
    with pytest.raises(KeyError, match="no 'two_streams' among the methods"):
        METHODS["two_streams"]
    with pytest.raises(KeyError, match="no 'cdt' among the losses"):
        LOSSES["cdt"]


def test_the_page_of_methods_names_every_method() -> None:
    page = (DOCS / "methods.md").read_text()
    listed = page.partition("## All methods")[2].partition("###")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", listed, flags=re.MULTILINE)) == set(METHODS)


def test_every_method_has_its_docstring_on_the_site() -> None:
    page = (DOCS / "api-methods.md").read_text()
    assert set(re.findall(r"^::: longtail\.methods\.(\w+)$", page, flags=re.MULTILINE)) == set(METHODS)
