"""The runs of a study's experiment in MLflow: found by key, created once, also where several processes log at once.

One parent run for each encoder and task; below it one run for each cell and seed, and one for each kind of constants
and head order with the score over the input-dependent fraction. A run carries the key of what it logs, so logging
again adds nothing, and what a killed process left unfinished is finished.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, sha256_of_json
from papa.study.probe import ProbeScores, ScoredSeed
from papa.study.store import Store
from tasks.mlflow_client import settled, study_experiment
from tasks.mlflow_parents import ParentRun, SeedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

CELL = "papa.cell"
"""The tag with a run's key."""
SCORES = "papa.scores"
"""The tag with the digest of the artifact that a cell's score is from."""
DRIVER = "papa.driver"
"""The tag with the process that runs the study."""
ROLE = "papa.role"
"""The tag that tells parent runs, cells and curves from one another."""
PARENT = "mlflow.parentRunId"
_FRACTION_STEPS = 10_000
DROP = "relative_drop"
PROGRESS = "progress"
"""The parent's metric of how much of the study is done, over the seconds since the parent run was created."""
NOTE = (
    "A run is one encoder on one task. Its child runs are cells (tag `papa.role = cell`) and, for each kind of "
    "constant matrices and head order, a curve (`papa.role = curve`): `score` over `fraction`, the share of heads that "
    "stay input-dependent. Charts of curves: search for ``tags.`papa.role` = 'curve'`` and set the x-axis (gear) to "
    "the metric `fraction`."
)
"""What MLflow shows above a study's runs."""
_DESCRIPTION = "mlflow.note.content"


class StudyRuns:
    """The runs of one study's experiment.

    Args:
        client: of the MLflow to log to.
        store: where files go if no server keeps them.
        study: the resolved specification.

    Attributes:
        experiment: its id.
        runs: what is logged, by key.
    """

    def __init__(self, client: MlflowClient, store: Store, study: StudySpec) -> None:
        self.client, self.study = client, study
        self.experiment = study_experiment(client, study.name, store, note=NOTE)
        self.runs = {run.data.tags[CELL]: run for run in self.search(f"tags.`{CELL}` IS NOT NULL")}

    def search(self, condition: str) -> Iterator[Run]:
        """Active runs of the experiment, newest first."""
        token = None
        while True:
            page = self.client.search_runs([self.experiment], condition, page_token=token, max_results=1000)
            yield from page
            token = page.token
            if not token:
                return

    def parent(self, parent: ParentRun) -> Run:
        """The run of a parent with its parameters, description and data sets; made where it is not there."""
        params = parent.parameters(self.study)
        key = sha256_of_json(params)
        if key not in self.runs:
            made = self.create(parent.name, {CELL: key, ROLE: "parent", **parent.tags})
            self.runs[key] = self.agree({key: made}, f"tags.`{CELL}` = '{key}'")[key]
        run = self.runs[key]
        if run.info.status != "FINISHED":
            new = {_DESCRIPTION: parent.description()} if _DESCRIPTION not in run.data.tags else {}
            self.log(run, params, tags={ROLE: "parent", **parent.tags, **new})
        self._log_texts(run, parent)
        return run

    def cell(self, one: SeedRun, parent_id: str, tags: Mapping[str, str] | None = None) -> Run:
        """A new run of a cell and seed."""
        own = {PARENT: parent_id, CELL: one.key, ROLE: "cell", **one.tags, **(tags or {})}
        run = self.runs[one.key] = self.create(one.name, own)
        return run

    def score(
        self,
        one: SeedRun,
        run: Run,
        scored: tuple[ArtifactReference, ProbeScores, ScoredSeed],
        tags: Mapping[str, str] | None = None,
        *,
        drop: float | None = None,
        more: Sequence[Metric] = (),
    ) -> None:
        """Log the score of a cell's run and end it; what says the same already stays.

        Args:
            one: the cell and seed.
            run: its run.
            scored: the artifact that scores it, what that holds, and the seed's part.
            tags: what is known of the score beside itself.
            drop: its relative drop, where that is known.
            more: metrics to log with it.
        """
        from mlflow.entities import Metric

        found, document, seed = scored
        known, tags = run.data.tags, {SCORES: found.digest, **(tags or {})}
        lost, shown = math.nan if drop is None else drop, run.data.metrics.get(DROP, math.nan)
        ended, same_drop = run.info.status == "FINISHED", lost == shown or (math.isnan(lost) and math.isnan(shown))
        if ended and same_drop and known.items() >= tags.items():
            return
        metrics = {
            "fraction": one.cell.fraction,
            "share_of_heads": 1 - len(document.constant_heads) / document.heads,
            "score": seed.score,
            "seconds": seed.seconds,
            "cell_seconds": document.seconds,
            "unseen_share": document.unseen_share,
            # MLflow forgets no metric: a drop that tells nothing any more is not a number.
            DROP: None if same_drop else lost,
        }
        # At the run's own time whoever logs the same once more adds nothing; what is shown otherwise is older.
        again = known.get(SCORES, found.digest) != found.digest or not (same_drop or math.isnan(shown))
        at, step = int(time.time() * 1000) if again else run.info.start_time, step_of(one.cell.fraction)
        values = [Metric(name, float(value), at, step) for name, value in metrics.items() if value is not None]
        self.log(run, {**one.parent.parameters(self.study), **one.own}, [*more, *values], tags)
        if not ended:
            self.client.set_terminated(run.info.run_id)

    def create(self, name: str, tags: Mapping[str, str]) -> Run:
        """A new run."""
        every = {"mlflow.source.name": "papa", "mlflow.user": "papa", **tags}
        return self.client.create_run(self.experiment, tags=every, run_name=name)

    def log(
        self, run: Run, params: Mapping[str, Any], metrics: Sequence[Metric] = (), tags: Mapping[str, str] | None = None
    ) -> None:
        """Log to a run in one request."""
        from mlflow.entities import Param, RunTag

        values = [Param(name, str(value)) for name, value in params.items()]
        marks = [RunTag(name, value) for name, value in (tags or {}).items()]
        settled(lambda: self.client.log_batch(run.info.run_id, params=values, metrics=metrics, tags=marks))

    def log_new(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """Log those metrics that a run lacks."""
        names = {metric.key for metric in metrics} & set(self.client.get_run(run_id).data.metrics)
        known = {
            (name, metric.step, metric.value)
            for name in names
            for metric in self.client.get_metric_history(run_id, name)
        }
        fresh = [one for one in metrics if (one.key, one.step, one.value) not in known]
        for start in range(0, len(fresh), 1000):
            self.client.log_batch(run_id, metrics=fresh[start : start + 1000])

    def agree(self, created: Mapping[str, Run], condition: str) -> dict[str, Run]:
        """Where another process logged the same at the same time, the older run stays.

        Args:
            created: runs of this process, by key.
            condition: finds all runs with these keys.
        """
        oldest: dict[str, Run] = {}
        for run in sorted(self.search(condition), key=lambda run: (run.info.start_time, run.info.run_id)):
            if CELL in run.data.tags:
                oldest.setdefault(run.data.tags[CELL], run)
        for key, run in created.items():
            if oldest.setdefault(key, run).info.run_id != run.info.run_id:
                self.client.delete_run(run.info.run_id)
        return {key: oldest[key] for key in created}

    def _log_texts(self, run: Run, parent: ParentRun) -> None:
        have = {one.dataset.digest for one in (run.inputs.dataset_inputs if run.inputs else ())}
        entities = [text.entity() for text in parent.texts]
        new = [one for one in entities if one.dataset.digest not in have]
        if new:
            settled(lambda: self.client.log_inputs(run.info.run_id, new))


def step_of(fraction: float) -> int:
    """A fraction as a metric's step, so that charts draw scores over fractions."""
    return round(fraction * _FRACTION_STEPS)


def progress_metric(run: Run, share: float) -> Metric:
    """How much of the study is done, over the seconds since the run was created."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    return Metric(PROGRESS, share, now, max(0, (now - run.info.start_time) // 1000))
