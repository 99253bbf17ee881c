"""Units by name, so that a recipe or a command can ask for one."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Units of one kind by name.

    Every kind follows one convention: `NAME = Registry[...]("kind")` stands in the `base.py` of its package, a
    unit registers itself with the decorator, and the package's `__init__` imports all units. A unit of another
    package joins through the entry-point group `longtail.<kind>`, and is imported when it is first asked for.

    Args:
        kind: the plural noun of the units.

    Example:
        >>> losses = Registry[type]("losses")
        >>> @losses.register("mine")
        ... class MyLoss: ...
        >>> losses["mine"] is MyLoss
        True
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._units: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a unit to register it as `name`."""

        def enter(unit: T) -> T:
            if name in self._units:
                raise ValueError(f"{name!r} is already registered among the {self.kind}: {self._units[name]!r}")
            self._units[name] = unit
            return unit

        return enter

    def __getitem__(self, name: str) -> T:
        if name in self._units:
            return self._units[name]
        for point in entry_points(group=f"longtail.{self.kind}", name=name):
            unit: T = point.load()
            return self._units.setdefault(name, unit)
        near = difflib.get_close_matches(name, self, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise KeyError(f"there is no {name!r} among the {self.kind}{hint}; choose from {', '.join(self)}")

    def __contains__(self, name: object) -> bool:
        # Ours first: reading the entry points of all installed packages is slow.
        return name in self._units or name in set(self)

    def __iter__(self) -> Iterator[str]:
        outside = {point.name for point in entry_points(group=f"longtail.{self.kind}")}
        return iter(sorted(self._units.keys() | outside))

    def __len__(self) -> int:
        return len(list(iter(self)))
