"""Open the study in a storage: SQLite in the study's folder, or any database by its URL.

Several processes may open one at the same time. The first makes it and writes down what it is a study of: the data set,
the version of longtail, and the settings. The others take these, or are refused.
"""

import contextlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.study import Study
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from longtail import __version__
from longtail._errors import DataError, UsageError
from longtail._printable import hide_passwords

FORMAT = 1
NAME = "study.db"
_KEY = "longtail"
# Seconds for which the first process may take to say what the study is.
_PATIENCE = 20.0
# A trial whose process has not been heard of for so many seconds is tried again.
_BEAT, _GRACE = 15, 60


@dataclass(frozen=True)
class Identity:
    """What a study is of.

    Args:
        data: the name of the data set.
        digest: of the images to train on and their labels.
        base: the planned settings of which the trials change some.
        choices: the heads or methods that are searched.
        tunes: whether some trials fine-tune.
        longtail: the version.
        format: of this record.
    """

    data: str
    digest: str
    base: dict[str, Any]
    choices: list[str]
    tunes: bool
    longtail: str = __version__
    format: int = FORMAT


def open_storage(url: str) -> RDBStorage:
    """Connect to the storage at `url`; its tables are made if need be."""
    if "://" not in url:
        raise UsageError(
            f"--storage must be the URL of a database, got {url!r}",
            "the trials are kept in it, and shared by it",
            f"for a file: --storage sqlite:///{url}",
        )
    lite, shown = url.startswith("sqlite"), hide_passwords(url)
    if (file := storage_file(url)) is not None and not file.parent.is_dir():
        raise DataError(
            f"the folder of the storage {shown} does not exist",
            "the trials are kept in it",
            f"make it: mkdir -p {file.parent}",
            code="no-storage",
        )
    for attempt in range(10):
        try:
            with quiet():
                return RDBStorage(
                    url,
                    engine_kwargs={"connect_args": {"timeout": 60}} if lite else {"pool_pre_ping": True},
                    heartbeat_interval=_BEAT,
                    grace_period=_GRACE,
                    heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=2),
                )
        except (SQLAlchemyError, StorageInternalError) as error:
            # Two processes that make the tables at once: the later one finds them half made.
            raced = "already exists" in str(error) or "no such table" in str(error)
            if attempt == 9 or not (raced or IntegrityError in (type(error), type(error.__cause__))):
                raise gone(url, error) from error
            time.sleep(0.2 * (attempt + 1))
        except ImportError as error:
            raise UsageError(
                f"--storage {shown} needs a driver that is not installed: {error}",
                "Optuna reaches databases through SQLAlchemy",
                "pip install 'psycopg[binary]' for postgresql://, PyMySQL for mysql+pymysql://, or leave --storage out",
            ) from error
        except RuntimeError as error:
            raise DataError(
                f"the study in {shown} was made by another version of Optuna",
                " ".join(str(error).split())[:200],
                "use that version, or start a new study with another --out",
                code="other-version",
            ) from error
    raise AssertionError("unreachable")


def find_study(storage: RDBStorage, name: str) -> tuple[Study, Identity] | None:
    """The study `name`, with what it is of; None if there is none yet."""
    with quiet():
        if name not in {summary.study_name for summary in optuna.get_all_study_summaries(storage)}:
            return None
        study = optuna.load_study(study_name=name, storage=storage)
    return study, _read_identity(study)


def make_study(
    storage: RDBStorage, name: str, identity: Identity, first: Sequence[dict[str, Any]]
) -> tuple[Study, Identity]:
    """Make the study with its first trials; if another process is faster, take what it made."""
    with quiet():
        try:
            study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        except DuplicatedStudyError:
            study = optuna.load_study(study_name=name, storage=storage)
            return study, _read_identity(study)
        for values in first:
            study.enqueue_trial(values)
        study.set_user_attr(_KEY, json.dumps(asdict(identity)))
    return study, identity


def check_identity(found: Identity, *, data: str, digest: str, url: str) -> None:
    """Refuse a study of another version or another data set."""
    url = hide_passwords(url)
    if (found.format, found.longtail) != (FORMAT, __version__):
        raise DataError(
            f"the study in {url} is of longtail {found.longtail}, this is {__version__}",
            "its trials may mean something else",
            f"use longtail {found.longtail}, or start a new study with another --out",
            code="other-version",
        )
    if found.digest != digest:
        other = f"{found.data} with other images" if found.data == data else found.data
        raise DataError(
            f"the study in {url} is of another data set: {other}",
            "scores on other images cannot be compared",
            "restore the images, or start a new study with another --out or --study",
            code="other-data",
        )


def storage_file(url: str) -> Path | None:
    """The file of an SQLite storage; None for a server."""
    scheme, _, rest = url.partition(":///")
    return Path(rest) if scheme.startswith("sqlite") and rest and rest != ":memory:" else None


def gone(url: str, error: Exception | str) -> DataError:
    """The error of a storage that cannot be reached."""
    first = " ".join(str(error).split())[:160]
    return DataError(
        f"the storage of the study is gone: {hide_passwords(url)}",
        f"no further trial can be kept ({hide_passwords(first)})",
        "bring it back and run the same command again; the trials so far are in trials.csv, the best in best.yaml",
        code="no-storage",
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's own lines on the screen."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _read_identity(study: Study) -> Identity:
    end = time.monotonic() + _PATIENCE
    while (text := study.user_attrs.get(_KEY)) is None:
        if time.monotonic() > end:
            raise DataError(
                f"the study {study.study_name} is not of longtail, or the process that made it died at once",
                "nothing says which data set it is of",
                "choose another --study, or another --out",
                code="no-study",
            )
        time.sleep(0.2)
    content = json.loads(text)
    try:
        return Identity(**content)
    except TypeError:
        return Identity("?", "", {}, [], False, content.get("longtail", "unknown"), content.get("format", 0))
