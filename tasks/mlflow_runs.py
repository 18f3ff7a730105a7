"""The runs of a study's experiment in MLflow: found by key, created once, also where several processes log at once.

One parent run for each encoder and task; below it one run for each cell and seed, and one for each kind of constants
and head order with the score over the input-dependent fraction. A run carries the key of what it logs, so logging
again adds nothing, and what a killed process left unfinished is finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from papa.spec import StudySpec
from papa.storage.artifacts import sha256_of_json
from tasks.mlflow_client import settled, study_experiment
from tasks.mlflow_parents import ParentRun, SeedRun
from tasks.probe import ProbeScores, ScoredSeed
from tasks.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

CELL = "papa.cell"
"""The tag with a run's key."""
LIVE = "papa.live"
"""The tag with a cell's key before it is scored."""
SCORES = "papa.scores"
"""The tag with the digest of the artifact that a live run's score is from."""
DRIVER = "papa.driver"
"""The tag with the process that runs the study."""
ROLE = "papa.role"
"""The tag that tells parent runs, cells and curves from one another."""
PARENT = "mlflow.parentRunId"
FRACTION_STEPS = 10_000
"""A metric's step is the input-dependent fraction in 1/10,000, so that charts draw score over fraction."""
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
        live: runs of cells that are not scored to the end, by their live key.
    """

    def __init__(self, client: MlflowClient, store: Store, study: StudySpec) -> None:
        self.client, self.study = client, study
        self.experiment = study_experiment(client, study.name, store, note=NOTE)
        self.runs = {run.data.tags[CELL]: run for run in self.search(f"tags.`{CELL}` IS NOT NULL")}
        unscored = [run for run in self.search(f"tags.`{LIVE}` IS NOT NULL") if CELL not in run.data.tags]
        self.live = {run.data.tags[LIVE]: run for run in unscored}

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

    def cell(self, one: SeedRun, parent_id: str, tags: Mapping[str, str]) -> Run:
        """A new run of a cell and seed."""
        return self.create(one.name, {PARENT: parent_id, ROLE: "cell", **one.tags, **tags})

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


def cell_metrics(
    run: Run, one: SeedRun, document: ProbeScores, found: ScoredSeed, drop: float | None = None
) -> list[Metric]:
    """What a cell's run says of its score, at the step of its fraction."""
    from mlflow.entities import Metric

    metrics = {
        "fraction": one.cell.fraction,
        "share_of_heads": 1 - len(document.constant_heads) / document.heads,
        "score": found.score,
        "seconds": found.seconds,
        "cell_seconds": document.seconds,
        "unseen_share": document.unseen_share,
        DROP: drop,
    }
    # The run's own time: whoever logs the same once more adds nothing.
    started, step = run.info.start_time, round(one.cell.fraction * FRACTION_STEPS)
    return [Metric(name, float(value), started, step) for name, value in metrics.items() if value is not None]


def progress_metric(run: Run, share: float) -> Metric:
    """How much of the study is done, over the seconds since the run was created."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    return Metric(PROGRESS, share, now, max(0, (now - run.info.start_time) // 1000))
