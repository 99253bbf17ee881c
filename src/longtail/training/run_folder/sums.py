"""`SHA256SUMS`: the digests of the results of a finished run, so that a number of it is proven to be what was written.

It is what `sha256sum` writes and checks: `sha256sum -c SHA256SUMS` in the run's folder. Weights, checkpoints and
config.json carry their own, see `longtail.training.seal`.
"""

from pathlib import Path

from longtail._errors import DataError
from longtail._files import write_text
from longtail.training.seal import digest_of

NAME = "SHA256SUMS"
# What `report`, `adjust` and comparisons compute from.
RESULTS = ("metrics.csv", "predictions.csv", "model/val_predictions.csv", "model/diagnostics.json")


def write_sums(folder: Path) -> None:
    """Write the digests of the results that are there."""
    found = {name: folder / name for name in RESULTS if (folder / name).is_file()}
    write_text(folder / NAME, "".join(f"{digest_of(file.read_bytes())}  {name}\n" for name, file in found.items()))


def remove_sums(folder: Path) -> None:
    """Forget the digests: the run goes on, and its results change."""
    (folder / NAME).unlink(missing_ok=True)


def check_sum(folder: Path, name: str) -> None:
    """Refuse a result that is not what was written; a run without digests is of an older version.

    Raises:
        DataError: its digest is another one, or `SHA256SUMS` is broken.
    """
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return
    if f"{digest_of((folder / name).read_bytes())}  {name}".encode() not in lines:
        raise DataError(
            f"{folder / name} is broken: its bytes do not have the digest that {NAME} names",
            "a number of the run could be wrong",
            f"copy the run's folder again from where it was made; if you changed the file yourself, delete {NAME}",
            code="broken-result",
            paths=[str(folder / name)],
        )
