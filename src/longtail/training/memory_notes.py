"""Notes in a run's folder of ranks that ran out of memory: how many pieces the next start works through a batch in.

A file for each such rank, since several may run out at the same time. They go when the run is over. See
`longtail.training.microbatches`.
"""

from pathlib import Path

from longtail._errors import DataError
from longtail._files import write_text

_NAME = "pieces."


def write_note(folder: Path, rank: int, pieces: int) -> None:
    """Let the next start of the run in `folder` use `pieces`."""
    write_text(folder / f"{_NAME}{rank}", f"{pieces}\n")


def read_notes(folder: Path) -> int:
    """The largest number that any rank noted; 1 without a note."""
    found = [1]
    for note in folder.glob(f"{_NAME}*"):
        try:
            found.append(int(note.read_text()))
        except ValueError as error:
            raise DataError(
                f"{note} must hold a number of pieces: {error}",
                "a rank that ran out of memory wrote it",
                "delete it to start with the checkpoint's number",
                code="broken-note",
                paths=[str(note)],
            ) from error
    return max(found)


def remove_notes(folder: Path) -> None:
    """Forget them: the run is over."""
    for note in folder.glob(f"{_NAME}*"):
        note.unlink(missing_ok=True)


def note_times(folder: Path) -> dict[str, int]:
    """When each note was written; a new one, or an old one written again, changes the answer."""
    return {note.name: note.stat().st_mtime_ns for note in folder.glob(f"{_NAME}*")}
