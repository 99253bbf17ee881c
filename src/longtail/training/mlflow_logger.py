"""`--loggers mlflow`."""

from collections.abc import Mapping
from typing import Any

from longtail._files import write_text
from longtail.training.logger import Logger


class MLflowLogger(Logger):
    """Sends settings and numbers to MLflow, where MLFLOW_TRACKING_URI says, else to its store beside the runs.

    A resumed run goes on in the same MLflow run, whose id is kept in `mlflow_run`.
    """

    title = "MLflow"
    _client: Any
    _run: str

    def open(self, *, epoch: int) -> None:
        """Open the run."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        del epoch
        self._client = MlflowClient()
        kept = self.folder / "mlflow_run"
        if kept.exists():
            self._run = kept.read_text(encoding="utf-8").strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        found = self._client.get_experiment_by_name("longtail")
        experiment = found.experiment_id if found else self._client.create_experiment("longtail")
        self._run = self._client.create_run(experiment, run_name=self.folder.name).info.run_id
        write_text(kept, self._run + "\n")
        self._client.log_batch(self._run, params=[Param(name, str(value)) for name, value in self.settings().items()])

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Send the numbers."""
        for name, value in numbers.items():
            self._client.log_metric(self._run, name, value, step=step)

    def shut(self, *, done: bool) -> None:
        """Close the run."""
        self._client.set_terminated(self._run, status="FINISHED" if done else "KILLED")
