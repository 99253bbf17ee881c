"""A reading for tests of the layer alone: batch norm's statistics, every gradient, components that start equal."""

from dataclasses import replace
from typing import Any

from longtail.nn import Reading

PLAIN = Reading(detach_responsibilities=False, component_init="equal", scale_affine=False, update_on_split=True)


def plain(**changes: Any) -> Reading:
    """`PLAIN` with some fields changed."""
    return replace(PLAIN, **changes)
