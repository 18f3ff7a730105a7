"""The runs of a study in MLflow, found by key and made once.

A run carries the key of what it shows: who logs it again, or at the same time, writes to the same
run.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from papa.storage.artifacts import ArtifactReference
from papa.study.probe import read_scores
from papa.study.store import Store
from tasks.mlflow import database_of
from tasks.shown import DESCRIPTION, POINT, Entry, ShownPart

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

NOTE = (
    "A run is one encoder on one task. Its child runs are cells (tag `papa.role = cell`) and, for "
    "each kind of constant matrices and head order, a curve (`papa.role = curve`): `score` over "
    "`fraction`, the share of heads that stay input-dependent. Charts of curves: search for "
    "``tags.`papa.role` = 'curve'`` and set the x-axis (gear) to the metric `fraction`."
)
DROP = "relative_drop"
_PROGRESS = "progress"
_KEY, _PARENT = "papa.cell", "mlflow.parentRunId"
"""The tags with a run's key, and with the run above it."""
_BY_PAPA = {"mlflow.source.name": "papa", "mlflow.user": "papa"}
_PAGE = 1000
"""Runs in an answer."""
_NONE: Mapping[Any, Any] = {}
_Written = TypeVar("_Written")


def _now() -> int:
    """In ms, as MLflow counts."""
    return int(time.time() * 1000)


class StudyRuns:
    """The runs of a study's experiment, which is made or restored where it is not there; of several
    with one key the oldest. Parents are made at once, others when they are asked for, with
    ``tags`` of whoever makes them.
    """

    def __init__(
        self,
        client: MlflowClient,
        store: Store,
        study: str,
        shown: Sequence[ShownPart],
        tags: Mapping[str, str] = _NONE,
    ) -> None:
        self.client, self._tags = client, tags
        made = partial(_experiment, client, study, store)
        self.experiment = twice(made, "RESOURCE_ALREADY_EXISTS")
        self.by_key: dict[str, Run] = {}
        self._made: set[str] = set()
        self._points: dict[Entry, list[Metric]] = defaultdict(list)
        self.agree()
        for parent in shown:
            self.get(parent.entry)
        self.agree()
        for parent in shown:
            self.write(parent.entry, end=False)
            run_id = self.get(parent.entry).info.run_id
            twice(partial(client.log_inputs, run_id, parent.data_sets()))

    def get(self, entry: Entry) -> Run:
        """The run of an entry, made where it is not there."""
        if entry.key not in self.by_key:
            above = {_PARENT: self.get(entry.parent).info.run_id} if entry.parent else {}
            tags = {**_BY_PAPA, _KEY: entry.key, **entry.tags, **above, **self._tags}
            run = self.client.create_run(self.experiment, tags=tags, run_name=entry.name)
            self.by_key[entry.key] = run
            self._made.add(run.info.run_id)
        return self.by_key[entry.key]

    def agree(self) -> None:
        """Of several runs with one key the oldest stays, and gets the child runs of the others.

        The oldest may appear when another process has agreed on a newer one and ended it. What
        another process still writes to stays until that one agrees.
        """
        from mlflow.utils import get_results_from_paginated_fn

        ask = partial(self.client.search_runs, [self.experiment], f"tags.`{_KEY}` IS NOT NULL")
        # Newest first.
        found: list[Run] = get_results_from_paginated_fn(
            lambda count, token: ask(max_results=count, page_token=token), _PAGE
        )
        oldest, instead = {run.data.tags[_KEY]: run for run in found}, dict[str, str]()
        self.by_key |= oldest
        for run in found:
            own, kept = run.info.run_id, oldest[run.data.tags[_KEY]].info.run_id
            if own != kept and (own in self._made or run.info.status != "RUNNING"):
                self.client.delete_run(own)
                instead[own] = kept
        for run in oldest.values():
            if (parent := run.data.tags.get(_PARENT)) in instead:
                self.client.set_tag(run.info.run_id, _PARENT, instead[parent])

    def add(self, entry: Entry, name: str, value: float, step: int, at: int | None = None) -> None:
        """A point of a metric, now or ``at`` that time, for the next request about the run."""
        from mlflow.entities import Metric

        self._points[entry].append(Metric(name, value, _now() if at is None else at, step))

    def add_progress(self, entry: Entry, share: float) -> None:
        """How much of the study is done, over the seconds since the run was created."""
        run = self.get(entry)
        if run.data.metrics.get(_PROGRESS) != share:
            self.add(entry, _PROGRESS, share, max(0, _now() - run.info.start_time) // 1000)

    def write(
        self,
        entry: Entry,
        values: Mapping[str, float | None] = _NONE,
        step: int = 0,
        *,
        tags: Mapping[str, str] = _NONE,
        end: bool = True,
    ) -> None:
        """Log what a run does not show yet: points that were added, ``values`` at ``step``, None
        where there is none any more, its parameters, tags that may change; and end it.
        """
        from mlflow.entities import Metric, Param, RunTag

        run = self.get(entry)
        run_id, known = run.info.run_id, run.data
        metrics = self._points.pop(entry, [])
        for name, value in values.items():
            # MLflow forgets no metric: one that is gone is not a number.
            wanted = math.nan if value is None else float(value)
            if repr(wanted) != repr(known.metrics.get(name, math.nan)):
                # What two processes write at the run's own time is there once; what changes a value
                # is newer.
                at = _now() if name in known.metrics else run.info.start_time
                metrics.append(Metric(name, wanted, at, step))
        params = {
            name: str(value) for name, value in entry.params.items() if name not in known.params
        }
        new = [Param(*param) for param in params.items()]
        changed = [RunTag(*tag) for tag in tags.items() if known.tags.get(tag[0]) != tag[1]]
        twice(partial(self.client.log_batch, run_id, metrics, new, changed))
        known.params.update(params)
        if end and run.info.status != "FINISHED":
            self.client.set_terminated(run_id)

    def flush(self) -> None:
        """Log the points that were added."""
        for entry in list(self._points):
            self.write(entry, end=False)

    def score(
        self,
        entries: Iterable[Entry],
        found: ArtifactReference,
        drops: Mapping[tuple[Any, ...], float] = _NONE,
        tags: Mapping[str, str] = _NONE,
    ) -> None:
        """Log the scores of cells and seeds from the artifact that holds them, and their drops."""
        document = read_scores(found)
        scores = {score.seed: score for score in document.scores}
        for entry in entries:
            fraction, score = entry.params["fraction"], scores[entry.params["seed"]]
            values = {
                "fraction": fraction,
                "share_of_heads": 1 - len(document.constant_heads) / document.heads,
                "score": score.score,
                "seconds": score.seconds,
                "cell_seconds": document.seconds,
                "unseen_share": document.unseen_share,
                DROP: drops.get(tuple(entry.params[name] for name in POINT)),
            }
            shown = {"papa.scores": found.digest, **tags}
            self.write(entry, values, step_of(fraction), tags=shown)


def step_of(fraction: float) -> int:
    """A fraction as a metric's step, so that charts draw scores over fractions."""
    return round(fraction * 10_000)


def _experiment(client: MlflowClient, study: str, store: Store) -> str:
    """The id of a study's experiment, made where there is none."""
    location = store.mlflow_artifacts.as_uri() if database_of(client.tracking_uri) else None
    found = client.get_experiment_by_name(study)
    if found is None:
        return client.create_experiment(study, location, {DESCRIPTION: NOTE})
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
