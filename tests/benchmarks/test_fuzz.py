"""Some cases of each kind, and those that were faults; `python -m benchmarks.robustness.fuzz` is the long version."""

from collections.abc import Iterator

import pytest

from benchmarks.robustness.fuzz import KINDS, Material, fuzz, limited, material

FAULTS = [("checkpoint", 110)]


@pytest.fixture(scope="module")
def found() -> Iterator[Material]:
    with limited(), material() as made:
        yield made


@pytest.mark.parametrize(("kind", "number"), [*((kind, number) for kind in KINDS for number in range(3)), *FAULTS])
def test_what_is_broken_ends_with_a_promised_exit_code(found: Material, kind: str, number: int) -> None:
    assert not fuzz(kind, number, found).fault
