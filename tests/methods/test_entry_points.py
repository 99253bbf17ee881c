"""A method of another package, as docs/methods.md has it, installed for real and found by importlib.metadata."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from longtail.methods import METHODS, Decoupled
from longtail.models import create_model

DOCS = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
COUNTS = [40, 10, 2]


class Images(NamedTuple):
    views: tuple[Tensor, ...]
    target: Tensor


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCS, flags=re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(params=["", '@METHODS.register("two_views")\n'], ids=["undecorated", "decorated"])
def _their_package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs what the page shows as a distribution `their-package`."""
    points = tomllib.loads(block("toml"))["project"]["entry-points"]["longtail.methods"]
    code = block("python").replace('@METHODS.register("two_views")\n', request.param)
    (tmp_path / "their_package.py").write_text(code)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[longtail.methods]", *lines]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(METHODS, "_units", dict(METHODS._units))  # what is found here leaves with the test
    yield
    sys.modules.pop("their_package", None)


@pytest.mark.usefixtures("_their_package")
def test_it_is_listed_without_being_imported_and_then_found_by_its_name() -> None:
    assert "two_views" in METHODS
    assert "their_package" not in sys.modules
    assert METHODS["two_views"].__module__ == "their_package"


@pytest.mark.usefixtures("_their_package")
def test_it_trains_alone_and_as_the_base_of_another() -> None:
    torch.manual_seed(0)
    model = create_model("resnet8", len(COUNTS)).eval()  # so that the order of passes does not matter
    views = (torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8))
    batch = Images(views, torch.tensor([0, 0, 1, 2]))
    expected = sum(0.5 * F.cross_entropy(model(x) + torch.tensor(COUNTS).log(), batch.target) for x in views)
    output = METHODS["two_views"](model, COUNTS)(batch)
    torch.testing.assert_close(output.loss, expected)
    assert set(output.parts) == {"weak", "strong"}
    torch.testing.assert_close(Decoupled(model, COUNTS, base="two_views")(batch).loss, expected)


def test_without_the_package_the_name_is_unknown() -> None:
    with pytest.raises(KeyError, match="no 'two_views' among the methods"):
        METHODS["two_views"]


def test_the_page_names_every_method() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", DOCS.split("##")[0], flags=re.MULTILINE)) == set(METHODS)
