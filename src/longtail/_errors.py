"""Errors that a user can fix: what is wrong, why it matters, what to do; and the exit code of each kind.

A message is three lines without a traceback. Lower layers raise these errors; the command prints them and exits
with `exit_code`. Anything else that reaches the command is a bug in longtail (exit code 1).
"""

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural.

    Example:
        >>> counted(1, "class"), counted(1200, "class"), counted(2, "image")
        ('1 class', '1,200 classes', '2 images')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural if number != 1 else ''}"


class LongtailError(Exception):
    """An error with three lines.

    Args:
        what: what is wrong, with the path or the number.
        why: why it matters.
        fix: the command or the change that fixes it.

    Example:
        >>> print(DataError("birds/ has one class", "a classifier needs two", "add a second folder"))
        birds/ has one class
        a classifier needs two
        add a second folder
    """

    exit_code: int = 1

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        # A DataLoader rebuilds the error of a worker from one string, the worker's traceback. The three lines
        # are at its end, after the name of the class.
        mark = f"{type(self).__qualname__}: "
        if not why and not fix and what.startswith("Caught ") and mark in what:
            what, why, fix = [*what.rsplit(mark, 1)[1].rstrip().split("\n", 2), "", ""][:3]
        super().__init__(what, why, fix)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.fix) if line)


class UsageError(LongtailError):
    """The arguments of the call do not make sense."""

    exit_code = 2


class DataError(LongtailError):
    """The data cannot be used as it is.

    Args:
        what: what is wrong, with the path or the number.
        why: why it matters.
        fix: the command or the change that fixes it.
        code: a fixed word for programs, such as `missing-folder`.
        paths: the files or folders concerned.
    """

    exit_code = 3

    def __init__(
        self, what: str, why: str = "", fix: str = "", *, code: str = "data", paths: Iterable[str] = ()
    ) -> None:
        super().__init__(what, why, fix)
        self.code, self.paths = code, tuple(paths)


class MemoryFullError(LongtailError):
    """The work does not fit into the memory."""

    exit_code = 4


_NO_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "annot allocate memory",
    "failed to map segment",
    "can't start new thread",
)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether it was Python, NumPy, an accelerator, torch on the CPU, a library or a thread that got no memory."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    refused = any(said in str(error) for said in _NO_MEMORY)
    return bool(kinds & {"MemoryError", "OutOfMemoryError"}) or (
        isinstance(error, RuntimeError | OSError | ImportError) and refused
    )
