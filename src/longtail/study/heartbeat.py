"""Trials whose process was killed are tried again: a trial that runs tells the storage so, and a silent one is over."""

import contextlib
import threading
from collections.abc import Iterator

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.study import Study
from optuna.trial import Trial
from sqlalchemy.exc import SQLAlchemyError


@contextlib.contextmanager
def heartbeat(storage: RDBStorage, study: Study, trial: Trial) -> Iterator[None]:
    """Tell the storage that the trial runs, now and every few seconds.

    Optuna does so in `Study.optimize` alone. `optuna.storages.fail_stale_trials` ends trials that have been silent for
    the grace period of the storage, and puts them at the head of the queue.
    """
    number = storage.get_trial_id_from_study_id_trial_number(
        storage.get_study_id_from_name(study.study_name), trial.number
    )
    storage.record_heartbeat(number)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(storage.get_heartbeat_interval()):
            with contextlib.suppress(SQLAlchemyError, StorageInternalError):  # the trial itself will say so
                storage.record_heartbeat(number)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
