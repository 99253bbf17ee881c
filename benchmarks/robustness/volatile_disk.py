"""A disk that forgets what was not flushed to it, as one does when the power goes.

What is promised by a system is little: the bytes of a file as they were when it was last flushed, and the names in a
folder as they were when the folder was. Of all that came after, anything may have reached the disk: a file may have its
old bytes, its new ones or a part of them, and each name may be the old or the new one, whatever the order of the calls.
"""

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any


class VolatileDisk:
    """Watches this process write below `root`, and at some call to the system leaves what a disk would have, and exits.

    Args:
        root: what lies there is on the disk already.
        image: where to write what is left.
        draw: chooses what else has reached the disk.
        crash_at: the number of the call at which the power goes; None for never.
    """

    EXIT = 137

    def __init__(self, root: Path, image: Path, draw: random.Random, crash_at: int | None) -> None:
        self.root, self.image, self._draw, self._crash_at = root.resolve(), image, draw, crash_at
        self.calls = 0
        self.last_words = ""
        self._files: dict[int, bytes] = {}
        self._folders: dict[Path, dict[str, int]] = {}
        self._held: dict[int, int] = {}
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            self._folders[folder] = self._names(folder)
        for file in (path for path in self.root.rglob("*") if path.is_file()):
            self._files[file.stat().st_ino] = file.read_bytes()

    def install(self) -> None:
        """From now on, watch this process."""
        for name in ("replace", "rename", "link", "unlink", "mkdir"):
            setattr(os, name, self._watched(getattr(os, name)))
        os.fsync = self._watched(self._flush)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._tick()
            return function(*arguments, **named)

        return call

    def _tick(self) -> None:
        self.calls += 1
        if self.calls == self._crash_at:
            self._crash()

    def _flush(self, handle: int) -> None:
        place, found = Path(f"/proc/self/fd/{handle}"), os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            self._folders[place.resolve()] = self._names(place.resolve())
            return
        self._files[found.st_ino] = place.read_bytes()
        if found.st_ino not in self._held:  # so that no other file gets its number
            self._held[found.st_ino] = os.dup(handle)

    def _names(self, folder: Path) -> dict[str, int]:
        return {entry.name: entry.inode() for entry in os.scandir(folder)}

    def _crash(self) -> None:
        now = {file.stat().st_ino: file.read_bytes() for file in self.root.rglob("*") if file.is_file()}
        self._leave(self.root, self.image, now)
        self.image.with_suffix(".words").write_text(self.last_words, "utf-8")
        os._exit(self.EXIT)

    def _leave(self, folder: Path, image: Path, now: dict[int, bytes]) -> None:
        Path(image).mkdir()
        old, new = self._folders.get(folder, {}), self._names(folder)
        for name in sorted({*old, *new}):
            number = self._draw.choice([old.get(name), new.get(name)])
            if number is None:
                continue
            if (folder / name).is_dir():
                self._leave(folder / name, image / name, now)
            else:
                (image / name).write_bytes(self._content(number, now))

    def _content(self, number: int, now: dict[int, bytes]) -> bytes:
        old, new = self._files.get(number, b""), now.get(number)
        if new is None or new == old:  # it has no name any more, but on the disk
            return old
        return self._draw.choice([old, new, new[: self._draw.randrange(len(new) + 1)]])
