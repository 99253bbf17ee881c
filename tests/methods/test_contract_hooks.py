"""That the trainer calls every hook of the contract, and reads every attribute."""

import ast
import inspect
from pathlib import Path

import pytest

from longtail.methods import Method

SOURCE = Path(inspect.getfile(Method)).parents[1]


def used(folder: Path) -> tuple[set[str], set[str]]:
    """Names that are called on, and read from, something called a method in the source of a package."""
    called, read = set[str](), set[str]()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if "method" in ast.unparse(node.func.value).lower():
                    called.add(node.func.attr)
            elif isinstance(node, ast.Attribute) and "method" in ast.unparse(node.value).lower():
                read.add(node.attr)
    return called, read


# What methods themselves call, and what torch calls: a step calls the module.
FOR_METHODS = {"features", "views_of"}
OF_TORCH = {"forward"}
# What `longtail list methods` shows.
FOR_USERS = {"passes"}


@pytest.mark.parametrize(
    "hook",
    [name for name, value in vars(Method).items() if inspect.isfunction(value) and not name.startswith("_")],
)
def test_every_hook_is_called(hook: str) -> None:
    if hook in FOR_METHODS:
        assert any(f"self.{hook}(" in file.read_text() for file in (SOURCE / "methods").glob("*.py"))
    elif hook not in OF_TORCH:
        assert hook in used(SOURCE / "training")[0]


@pytest.mark.parametrize("attribute", [name for name in inspect.get_annotations(Method) if not name.startswith("_")])
def test_every_attribute_is_read(attribute: str) -> None:
    if attribute in FOR_USERS:
        assert f"kind.{attribute}" in (SOURCE / "cli" / "list_units.py").read_text()
    else:
        assert attribute in used(SOURCE / "training")[1]
