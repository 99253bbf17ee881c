"""What the compiled kernels are handed: the structures of `compound_bn.h`, field by field."""

import ctypes
from typing import ClassVar

# Steps of a pass; where there are several ranks they are called one by one, with sums over the ranks in between.
SHIFT, ESTIMATE, FINISH = 1, 2, 4
SUMS, INPUT = 1, 2

# What normalises, by its name in `Reading`.
STATISTICS = {"running": 0, "batch": 1, "updated": 2}

# What a pass returns.
NO_MEMORY, DONE, REFUSED = 0, 1, 2

_Fields = list[tuple[str, type]]


def _integers(*names: str) -> _Fields:
    return [(name, ctypes.c_int64) for name in names]


def _pointers(*names: str) -> _Fields:
    return [(name, ctypes.c_void_p) for name in names]


def _floats(*names: str) -> _Fields:
    return [(name, ctypes.c_float) for name in names]


_SHAPE = _integers("samples", "positions", "channels", "components", "threads")


class ForwardStructure(ctypes.Structure):
    """`struct forward`."""

    _fields_: ClassVar[_Fields] = [
        *_SHAPE,
        *_pointers("x", "y", "w", "groups", "prior", "mean", "var", "weight", "bias", "state", "moments"),
        *_pointers("new_prior", "new_mean", "new_var"),
        *_integers("planes", "training", "statistics", "sample_variance", "relu"),
        *_floats("eps", "momentum", "min_mass"),
    ]


class BackwardStructure(ctypes.Structure):
    """`struct backward`."""

    _fields_: ClassVar[_Fields] = [
        *_SHAPE,
        *_pointers("x", "grad", "y", "grad_x", "w", "groups", "weight", "state", "sums", "grad_weight", "grad_bias"),
        *_integers("planes", "grad_planes", "statistics", "through_weights"),
    ]
