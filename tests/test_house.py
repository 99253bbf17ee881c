"""How the modules are named: a module is called by what it is famous for, so that grep finds it."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

import longtail
from longtail.methods import METHODS, Method

ROOT = Path(longtail.__file__).parent
MODULES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if not path.name.startswith("_"))
# Words of the field that end in -ing: they name a thing, not something that the module is doing.
FIELD_WORDS = {"balancing", "learning", "mixing", "preprocessing", "sampling", "smoothing", "training", "weighting"}


def public_names(path: Path) -> Iterator[str]:
    """The public names that a module defines, not those that it imports."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def plain(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.mark.parametrize("module", MODULES)
def test_the_stem_of_a_module_occurs_in_a_name_that_it_defines(module: str) -> None:
    stem = Path(module).stem
    names = list(public_names(ROOT / module))
    assert stem == "base" or any(plain(stem) in plain(name) for name in names), (
        f"{module} defines {', '.join(names)}: name it after one of them"
    )


@pytest.mark.parametrize("module", MODULES)
def test_no_part_of_the_path_of_a_module_is_a_gerund(module: str) -> None:
    last_words = {part.rpartition("_")[2] for part in Path(module).with_suffix("").parts}
    gerunds = {word for word in last_words if word.endswith("ing")} - FIELD_WORDS
    assert not gerunds, f"{module}: name it by a noun or by the function that it is famous for"


def test_every_registry_stands_in_the_base_of_its_package() -> None:
    # Views are no package: they are methods of the preprocessing.
    places = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).partition("[")[0] == "Registry"
    }
    assert {place for place in places if Path(place).name != "base.py"} == {"data/views.py"}


METHOD_FILES = sorted(path for path in (ROOT / "methods").glob("[!_]*.py") if path.name != "base.py")


def test_a_method_is_a_short_file() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in METHOD_FILES}
    assert statistics.median(lengths.values()) <= 130
    assert {name: length for name, length in lengths.items() if length > 200} == {}


def test_methods_share_no_base_but_the_contract() -> None:
    """A method may vary another one, or have a base of its own; what several need is a part of them, not their base."""
    registered = set(METHODS.values())
    bases = {
        base: [kind for kind in registered if issubclass(kind, base)]
        for kind in registered
        for base in kind.__mro__[1:]
        if issubclass(base, Method) and base is not Method and base not in registered
    }
    assert {base.__name__: len(heirs) for base, heirs in bases.items() if len(heirs) > 1} == {}
