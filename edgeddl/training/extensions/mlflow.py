"""--mlflow URI: a run of MLflow with the options as parameters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from edgeddl.training.extensions.trackers import Tracker
from edgeddl.training.prepared_run import PreparedRun

EXPERIMENT = "edgeddl"
# A request per step would delay training. MLflow accepts at most 1,000 metrics in one request.
SEND_EVERY_SECONDS = 10.0
SEND_EVERY_METRICS = 900


class MLflow(Tracker):
    """Collects values and sends them in batches."""

    name = "MLflow"

    def __init__(self, uri: str, run: PreparedRun) -> None:
        super().__init__()
        assert run.folder is not None
        self._client = MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        made = self._client.create_run(number, run_name=run.folder.path.name)
        self._run_id = made.info.run_id
        options = run.config.to_json() | {"ranks": run.communicator.size}
        parameters = [Param(key, str(value)) for key, value in options.items()]
        self._client.log_batch(self._run_id, params=parameters)
        self._metrics: list[Metric] = []
        self._sent = time.monotonic()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._metrics += [Metric(name, value, now, step) for name, value in values.items()]
        waited = time.monotonic() - self._sent
        if waited > SEND_EVERY_SECONDS or len(self._metrics) > SEND_EVERY_METRICS:
            self.flush()

    def flush(self) -> None:
        self._client.log_batch(self._run_id, metrics=self._metrics)
        self._metrics, self._sent = [], time.monotonic()

    def close(self, succeeded: bool) -> None:
        self.flush()
        self._client.set_terminated(self._run_id, "FINISHED" if succeeded else "FAILED")
