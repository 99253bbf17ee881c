"""The lock of a run's folder: one process trains in it at a time, and others are told which.

The lock is the system's (`flock`), so that it ends with its process, however that dies; on network file systems it
reaches as far as theirs does. The file `.lock` says who holds it: process, host and the boot of that host. Where the
file system has no locks, those words decide: a process that lives since the same boot holds it.
"""

import contextlib
import errno
import functools
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from longtail._errors import DataError, UsageError

NAME = ".lock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@dataclass(frozen=True)
class Holder:
    """Who trains in a folder: process, host, the boot of the host, and since when."""

    pid: int
    host: str
    boot: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which exists, within this context.

    Raises:
        UsageError: another process holds it.
    """
    file = folder / NAME
    handle = _acquire(folder, file)
    _held.add(handle)
    _leave_to_parent()
    try:
        yield
    finally:
        if handle in _held:
            _held.discard(handle)
            file.unlink(missing_ok=True)
            os.close(handle)


def lock_holder(folder: Path) -> Holder | None:
    """Who trains in `folder` now; None if nobody does."""
    file = folder / NAME
    try:
        handle = os.open(file, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _take(handle) else _read(handle)
    finally:
        os.close(handle)


# The handles of the locks that this process holds: a process that is forked has to close them.
_held: set[int] = set()


@functools.cache
def _leave_to_parent() -> None:
    """Let a worker that outlives its parent not keep the lock."""

    def leave() -> None:
        for handle in _held:
            os.close(handle)
        _held.clear()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=leave)


def _acquire(folder: Path, file: Path) -> int:
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(
                f"cannot write {file}: {error.strerror}",
                "a run locks its folder",
                f"check the space and the permissions of {folder}",
                code="cannot-write",
            ) from error
        if not _take(handle):
            holder = _read(handle)
            os.close(handle)
            raise UsageError(
                f"{folder} is in use: {holder or 'another process'} is training in it",
                "two processes would write over each other",
                "wait for it, or stop it first",
            )
        if _is(handle, file):
            break
        os.close(handle)  # its last holder has just removed it
    holder = Holder(os.getpid(), platform.node(), _boot(), datetime.now(UTC).isoformat(timespec="seconds"))
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(holder)).encode("utf-8"), 0)
    return handle


def _take(handle: int) -> bool:
    """Take the lock of an open file; False if another has it."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except ImportError:
        return not _lives(_read(handle))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return not _lives(_read(handle))
    return True


def _lives(holder: Holder | None) -> bool:
    """Whether the process is one of this host, since this boot, and lives."""
    if holder is None or (holder.host, holder.boot) != (platform.node(), _boot()) or holder.pid == os.getpid():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is(handle: int, file: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), file.stat())
    return False


def _read(handle: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(handle, 4096, 0)))
    except (OSError, ValueError, TypeError):
        return None


def _boot() -> str:
    with contextlib.suppress(OSError):
        return _BOOT.read_text(encoding="ascii").strip()
    return ""
