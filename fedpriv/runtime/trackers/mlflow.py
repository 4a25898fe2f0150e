"""MLflow: a run in the store that MLFLOW_TRACKING_URI names, else in `mlflow.db` beside the runs.

`mlflow ui --backend-store-uri sqlite:///runs/mlflow.db` shows it. MLflow's own store of plain files
has been in maintenance since 3.0 and refuses new runs, so the local store is SQLite.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedpriv.runtime.trackers.base import Tracked, flat, numbers

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

RUN, ROUND = "fedpriv.run", "fedpriv.round"
"""Tags of a run: its folder, and the last round that was written."""
LONGEST = 500
"""Characters of a setting, which MLflow limits."""
AT_ONCE = 100
"""Settings in one request, which MLflow limits."""


@contextmanager
def follow(run: Tracked) -> Iterator[Logged]:
    """Writes settings once, and each round; a resumed run goes on with the entry that it has."""
    # A privacy tool must not phone home.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # It would ask for minutes, each time, while the run waits.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow.entities import Param
    from mlflow.tracking import MlflowClient

    store = run.runs.absolute() / "mlflow.db"
    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store}")
    found = client.get_experiment_by_name(run.name)
    experiment = found.experiment_id if found else client.create_experiment(run.name)
    if store.is_file():
        store.chmod(0o600)
    place = str(run.run_dir.absolute())
    known = client.search_runs([experiment], f"tags.`{RUN}` = '{place}'")
    if known:
        entry = known[0]
        client.update_run(entry.info.run_id, status="RUNNING")
    else:
        entry = client.create_run(experiment, tags={RUN: place}, run_name=run.run_dir.name)
        params = [Param(name, str(value)[:LONGEST]) for name, value in flat(run.settings)]
        for start in range(0, len(params), AT_ONCE):
            client.log_batch(entry.info.run_id, params=params[start : start + AT_ONCE])
    written = int(entry.data.tags.get(ROUND, 0))
    status = "FAILED"
    try:
        yield Logged(client, entry.info.run_id, written)
        status = "FINISHED"
    finally:
        client.set_terminated(entry.info.run_id, status)


class Logged:
    """Writes every number of a round's record, nested ones as `group/name`."""

    def __init__(self, client: MlflowClient, entry: str, written: int) -> None:
        self._client, self._entry, self._written = client, entry, written

    def round(self, record: Mapping[str, Any]) -> None:
        """Writes one round, unless it was written before a run was killed: it has the same bits."""
        from mlflow.entities import Metric, RunTag

        round = record["round"]
        if round <= self._written and round > 0:
            return
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, round) for name, value in numbers(record)]
        tag = RunTag(ROUND, str(round))
        self._client.log_batch(self._entry, metrics=metrics, tags=[tag])
