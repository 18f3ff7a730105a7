"""The runs of a study in MLflow, found by key and made once.

A run carries the key of what it shows: who logs it again, or at the same time, writes to the same
run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from papa.study.store import Store
from tasks.mlflow import database_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

KEY = "papa.cell"
"""The tag with a run's key."""
PARENT = "mlflow.parentRunId"
DESCRIPTION = "mlflow.note.content"
"""The tag of an experiment or a run that MLflow shows as text above it."""
Point = tuple[str, float, int, int]
"""Of a metric: its name, a value, the time in ms and the step."""
_BY_PAPA = {"mlflow.source.name": "papa", "mlflow.user": "papa"}
_BATCH = 500
"""Points in a request; MLflow takes a thousand things."""
_NONE: Mapping[str, str] = {}
_Written = TypeVar("_Written")


def now() -> int:
    """In ms, as MLflow counts."""
    return int(time.time() * 1000)


@dataclass(frozen=True, eq=False)
class Entry:
    """What a run shows: the key it is found by, its name, its parameters, and tags."""

    key: str
    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class Runs:
    """The runs of a study's experiment, which is made or restored where it is not there; of several
    with one key the oldest.
    """

    def __init__(self, client: MlflowClient, study: str, store: Store, note: str) -> None:
        self.client = client
        made = partial(_experiment, client, study, store, note)
        self.experiment = twice(made, "RESOURCE_ALREADY_EXISTS")
        self.by_key: dict[str, Run] = {}
        self._made: set[str] = set()
        self.agree()

    def get(self, entry: Entry, **tags: str) -> Run:
        """The run of an entry, made with these tags as well where it is not there."""
        if entry.key not in self.by_key:
            tags = {**_BY_PAPA, KEY: entry.key, **entry.tags, **tags}
            run = self.client.create_run(self.experiment, tags=tags, run_name=entry.name)
            self.by_key[entry.key] = run
            self._made.add(run.info.run_id)
        return self.by_key[entry.key]

    def agree(self) -> None:
        """Of several runs with one key the oldest stays, and gets the child runs of the others.

        The oldest may appear when another process has agreed on a newer one and ended it. What
        another process still writes to stays until that one agrees.
        """
        runs, instead = self._found(), {}
        oldest = {run.data.tags[KEY]: run for run in runs}
        self.by_key |= oldest
        for run in runs:
            own, kept = run.info.run_id, oldest[run.data.tags[KEY]].info.run_id
            if own != kept and (own in self._made or run.info.status != "RUNNING"):
                self.client.delete_run(own)
                instead[own] = kept
        for run in oldest.values():
            if (parent := run.data.tags.get(PARENT)) in instead:
                self.client.set_tag(run.info.run_id, PARENT, instead[parent])

    def write(
        self,
        entry: Entry,
        values: Mapping[str, float | None],
        step: int = 0,
        *,
        points: Sequence[Point] = (),
        tags: Mapping[str, str],
        end: bool = True,
    ) -> None:
        """Log what a run does not show yet: ``values`` at ``step``, None where there is none any
        more, ``points`` as they are, tags that may change; and end it.
        """
        run, new = self.get(entry), list(points)
        known = run.data
        for name, value in values.items():
            # MLflow forgets no metric: one that is gone is not a number.
            wanted = math.nan if value is None else float(value)
            if repr(wanted) != repr(known.metrics.get(name, math.nan)):
                # What two processes write at the run's own time is there once; what changes a value
                # is newer.
                new.append(
                    (name, wanted, now() if name in known.metrics else run.info.start_time, step)
                )
        params = {
            name: str(value) for name, value in entry.params.items() if name not in known.params
        }
        changed = {name: value for name, value in tags.items() if known.tags.get(name) != value}
        self.log(run.info.run_id, new, params, changed)
        if end and run.info.status != "FINISHED":
            self.client.set_terminated(run.info.run_id)

    def log(
        self,
        run_id: str,
        points: Sequence[Point],
        params: Mapping[str, str] = _NONE,
        tags: Mapping[str, str] = _NONE,
    ) -> None:
        """Log to a run, in one request unless there are many points."""
        from mlflow.entities import Metric, Param, RunTag

        of_run = [Param(*item) for item in params.items()]
        marks = [RunTag(*item) for item in tags.items()]
        for start in range(0, len(points) or 1, _BATCH):
            metrics = [Metric(*item) for item in points[start : start + _BATCH]]
            if metrics or params or tags:
                twice(partial(self.client.log_batch, run_id, metrics, of_run, marks))

    def _found(self) -> list[Run]:
        """The runs that are there, newest first."""
        found: list[Run] = []
        token = None
        while token != "":
            wanted = f"tags.`{KEY}` IS NOT NULL"
            page = self.client.search_runs(
                [self.experiment], wanted, page_token=token, max_results=1000
            )
            found += page
            token = page.token or ""
        return found


def _experiment(client: MlflowClient, study: str, store: Store, note: str) -> str:
    """The id of a study's experiment, made where there is none."""
    location = store.mlflow_artifacts.as_uri() if database_of(client.tracking_uri) else None
    found = client.get_experiment_by_name(study)
    if found is None:
        return client.create_experiment(study, location, {DESCRIPTION: note})
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def twice(write: Callable[[], _Written], code: str = "BAD_REQUEST") -> _Written:
    """Write; where MLflow refuses with this code, as another process wrote the same meanwhile, the
    second time finds it there.
    """
    from mlflow.exceptions import MlflowException

    try:
        return write()
    except MlflowException as error:
        if error.error_code != code:
            raise
    return write()
