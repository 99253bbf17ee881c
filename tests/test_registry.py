from importlib.metadata import EntryPoint
from unittest.mock import patch

import pytest

from longtail._registry import Registry


def test_a_unit_is_found_by_its_name() -> None:
    units = Registry[type]("losses")

    @units.register("mine")
    class Mine: ...

    assert units["mine"] is Mine
    assert list(units) == ["mine"]
    assert "mine" in units


def test_a_name_is_entered_once() -> None:
    units = Registry[int]("losses")
    units.register("one")(1)
    with pytest.raises(ValueError, match="'one' is already registered among the losses"):
        units.register("one")(2)


def test_a_typo_gets_the_nearest_name() -> None:
    units = Registry[int]("methods")
    units.register("compound_bn")(1)
    with pytest.raises(KeyError, match="did you mean 'compound_bn'"):
        units["compound_nb"]


def test_a_unit_of_another_package_joins_through_its_entry_point() -> None:
    point = EntryPoint(name="theirs", value="math:pi", group="longtail.methods")

    def installed(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if group == point.group and name in (None, "theirs") else []

    units = Registry[float]("methods")
    with patch("longtail._registry.entry_points", installed):
        assert "theirs" in units
        assert units["theirs"] == pytest.approx(3.14159, abs=1e-4)
