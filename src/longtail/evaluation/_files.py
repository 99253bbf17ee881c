"""Write a file whole or not at all, so that a full disk or a power cut leaves the previous one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_or_not_at_all(file: Path, *, errors: str) -> Iterator[TextIO]:
    """Write beside `file`, and put it in place only when it is complete and on disk."""
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8", errors=errors, newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
