"""A run of MLflow in its file format: `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri RUN/mlruns`."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from imperfed.results.folder import Record, RunFolder
from imperfed.results.tracking import Tracker

EXPERIMENT = "imperfed"
BATCH = 1000
"""As many metrics as MLflow takes in one call."""
LONGEST = 6000
"""As many characters as MLflow keeps of a parameter."""


class MlflowRun(Tracker):
    """Settings as parameters, metrics by round, the report as an artifact; those of a site end in its name."""

    package: ClassVar[str] = "mlflow"
    place: ClassVar[str] = "mlruns"

    def __init__(self, run: RunFolder, settings: Mapping[str, Any]) -> None:
        super().__init__(run, settings)
        # Nothing is sent anywhere, and a run stays in files of its own: MLflow has a variable for either.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client = MlflowClient(self.folder.resolve().as_uri())
        experiment = self.client.create_experiment(EXPERIMENT)
        self.id = self.client.create_run(experiment, run_name=run.path.name).info.run_id
        self.client.log_batch(self.id, params=[Param(key, str(value)[:LONGEST]) for key, value in settings.items()])

    def forget(self) -> None:
        """Delete experiments, whose folders are named by numbers; MLflow expects the other files to stay."""
        for experiment in self.folder.glob("[0-9]*"):
            shutil.rmtree(experiment)

    def write(self, records: list[Record]) -> None:
        """Log one value per record."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(metric_name(record), record["value"], now, record["round"]) for record in records]
        for first in range(0, len(metrics), BATCH):
            self.client.log_batch(self.id, metrics=metrics[first : first + BATCH])

    def end(self, completed: bool) -> None:
        """Add the report, and say how the run ended."""
        if (report := self.run.path / "report.html").exists():
            self.client.log_artifact(self.id, str(report))
        self.client.set_terminated(self.id, "FINISHED" if completed else "KILLED")


def metric_name(record: Record) -> str:
    """Return `metric`, or `metric/site`; MLflow has only one level of names, and admits few signs."""
    site = "" if record["site"] == "*" else f"/{record['site']}"
    return re.sub(r"[^/\w.\- :]", "_", record["metric"] + site)
