"""A study's scores as MLflow runs.

One experiment a study, one parent run an encoder and task, one child run a cell. A run carries the key of
what it logs, so logging again adds nothing, and what a killed process left unfinished is finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from papa.progress import Progress
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, sha256_of_json
from tasks.mlflow_client import database_of
from tasks.mlflow_groups import BEATS_BASELINE, Group, log_files, worth_of
from tasks.probe import ScoredSeed, read_scores
from tasks.results import Point
from tasks.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

CELL = "papa.cell"
PARENT = "mlflow.parentRunId"
FRACTION_STEPS = 10_000
"""A metric's step is the input-dependent fraction in 1/10,000, so that charts draw score over fraction."""
NOTE = (
    "A run is one encoder on one task; its child runs are cells. "
    "Charts: set the x-axis (gear) to the metric `fraction`, the share of heads with their own attention."
)
"""What MLflow shows above a study's runs."""


class RunLogger:
    """Logs a study; what is logged already stays.

    Args:
        client: of the MLflow to log to.
        store: where files go if no server keeps them.
        study: the resolved specification.
        results: the study's results.
        points: every combination.
    """

    def __init__(
        self,
        client: MlflowClient,
        store: Store,
        study: StudySpec,
        results: ArtifactReference,
        points: Sequence[Point],
    ) -> None:
        self.client, self.study, self.results, self.points = client, study, results, points
        self.worth = worth_of(results)
        self.experiment = self._experiment(store)
        self.runs = {run.data.tags[CELL]: run for run in self._search(f"tags.`{CELL}` IS NOT NULL")}

    def log(self, groups: Sequence[Group], progress: Progress) -> dict[str, Any]:
        """Log what is not logged yet; returns the experiment and the parents' run ids."""
        parents, done = {}, 0
        progress(0, len(self.points))
        for group in groups:
            parent = self._parent(group)
            verdict = self.worth[group.model, group.task.name].verdict
            _settled(partial(self.client.set_tag, parent, BEATS_BASELINE, verdict))
            log_files(self.client, parent, group, self.results)
            _settled(partial(self._log_curves, parent, group))
            created: dict[str, Run] = {}
            originals = self._originals(group)
            for number in group.points:
                created |= self._log_point(parent, group, self.points[number], originals)
                done += 1
                progress(done, len(self.points))
            if created:
                self._agree(created, f"tags.`{PARENT}` = '{parent}'")
            self.client.set_terminated(parent)
            parents[group.name] = parent
        return {"experiment": self.study.name, "experiment_id": self.experiment, "parents": parents}

    def _experiment(self, store: Store) -> str:
        from mlflow.exceptions import MlflowException

        name = self.study.name
        location = None if database_of(self.client.tracking_uri) is None else store.mlflow_artifacts.as_uri()
        if self.client.get_experiment_by_name(name) is None:
            try:
                return self.client.create_experiment(name, location, tags={"mlflow.note.content": NOTE})
            except MlflowException as error:
                # Another process was faster.
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
        found = self.client.get_experiment_by_name(name)
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return found.experiment_id

    def _search(self, condition: str) -> Iterator[Run]:
        """Runs of the experiment, newest first."""
        token = None
        while True:
            page = self.client.search_runs([self.experiment], condition, page_token=token, max_results=1000)
            yield from page
            token = page.token
            if not token:
                return

    def _parent(self, group: Group) -> str:
        params = group.parameters(self.study)
        key = sha256_of_json(params)
        if key not in self.runs:
            self.runs[key] = self._agree({key: self._create(group.name, key)}, f"tags.`{CELL}` = '{key}'")[key]
        run = self.runs[key]
        if run.info.status != "FINISHED":
            self._log(run, params)
        return run.info.run_id

    def _create(self, name: str, key: str, **more: str) -> Run:
        tags = {"mlflow.source.name": "papa", "mlflow.user": "papa", CELL: key, **more}
        return self.client.create_run(self.experiment, tags=tags, run_name=name)

    def _log(self, run: Run, params: Mapping[str, Any], metrics: Sequence[Metric] = ()) -> None:
        from mlflow.entities import Param

        values = [Param(name, str(value)) for name, value in params.items()]
        _settled(lambda: self.client.log_batch(run.info.run_id, params=values, metrics=metrics))

    def _agree(self, created: Mapping[str, Run], condition: str) -> dict[str, Run]:
        """Where another process logged the same at the same time, the older run stays.

        Args:
            created: runs of this process, by key.
            condition: finds all runs with these keys.
        """
        oldest: dict[str, Run] = {}
        for run in sorted(self._search(condition), key=lambda run: (run.info.start_time, run.info.run_id)):
            oldest.setdefault(run.data.tags[CELL], run)
        for key, run in created.items():
            if oldest.setdefault(key, run).info.run_id != run.info.run_id:
                self.client.delete_run(run.info.run_id)
        return {key: oldest[key] for key in created}

    def _log_point(self, parent: str, group: Group, point: Point, originals: Mapping[int, float]) -> dict[str, Run]:
        """One child run a seed; those that were not there yet, by key."""
        from mlflow.entities import Metric

        document = read_scores(point.scores.folder)
        params = group.parameters(self.study)
        verdict = self.worth[group.model, group.task.name].verdict
        step = round(point.fraction * FRACTION_STEPS)
        created = {}
        for one in document.scores:
            cell = {
                "constants": point.constants,
                "order": point.order,
                "fraction": point.fraction,
                "constant_heads": len(document.constant_heads),
                "seed": one.seed,
            }
            known = {"group": sha256_of_json(params), **cell, "scores": point.scores.digest, "verdict": verdict}
            key = sha256_of_json(known)
            run = self.runs.get(key)
            if run is not None and run.info.status == "FINISHED":
                continue
            if run is None:
                name = f"{point.constants} · {point.order} · {point.fraction:g} · seed {one.seed}"
                run = created[key] = self._create(name, key, **{PARENT: parent, BEATS_BASELINE: verdict})
            metrics = {
                "fraction": point.fraction,
                "share_of_heads": 1 - len(document.constant_heads) / document.heads,
                "score": one.score,
                "seconds": one.seconds,
                "cell_seconds": document.seconds,
                "coverage": document.unseen_share,
                "relative_drop": _relative_drop(originals, one),
            }
            # The run's own time: whoever logs the same once more adds nothing.
            self._log(
                run,
                {**params, **cell},
                [
                    Metric(name, float(value), run.info.start_time, step)
                    for name, value in metrics.items()
                    if value is not None
                ],
            )
            self.client.set_terminated(run.info.run_id)
        return created

    def _originals(self, group: Group) -> dict[int, float]:
        """The score of each seed with every head input-dependent; empty where the study lacks them."""
        for number in group.points:
            point = self.points[number]
            if point.fraction == 1:
                return {one.seed: one.score for one in read_scores(point.scores.folder).scores}
        return {}

    def _log_curves(self, parent: str, group: Group) -> None:
        """On the parent run: the mean score, one metric a constants and order, and the fraction it belongs to; the
        baselines.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        run = self.client.get_run(parent)
        curves: dict[tuple[str, int], list[float]] = {}
        for number in group.points:
            point = self.points[number]
            place = f"score/{point.constants.replace(':', '.')}/{point.order}", round(point.fraction * FRACTION_STEPS)
            # A combination has several points where each seed has its own constant heads.
            scores = curves.setdefault(place, [])
            scores += [one.score for one in read_scores(point.scores.folder).scores]
        metrics = [Metric(name, sum(scores) / len(scores), now, step) for (name, step), scores in curves.items()]
        fractions = sorted({self.points[number].fraction for number in group.points})
        metrics += [Metric("fraction", share, now, round(share * FRACTION_STEPS)) for share in fractions]
        worth = self.worth[group.model, group.task.name]
        metrics += [Metric(f"baseline/{name}", score, now, 0) for name, score in worth.baselines.items()]
        names = {metric.key for metric in metrics}
        known = {
            (name, metric.step, metric.value)
            for name in names & set(run.data.metrics)
            for metric in self.client.get_metric_history(parent, name)
        }
        fresh = [one for one in metrics if (one.key, one.step, one.value) not in known]
        for start in range(0, len(fresh), 1000):
            self.client.log_batch(parent, metrics=fresh[start : start + 1000])


def _settled(write: Callable[[], None]) -> None:
    """Write what may be written once; where another process wrote the same meanwhile, MLflow refuses, and the second
    time it finds it there.
    """
    from mlflow.exceptions import MlflowException

    try:
        write()
    except MlflowException as error:
        if error.error_code != "BAD_REQUEST":
            raise
        write()


def _relative_drop(originals: Mapping[int, float], one: ScoredSeed) -> float | None:
    """What a seed lost against its own original, relative to the mean original: the mean over seeds is the study's."""
    if one.seed not in originals:
        return None
    size = abs(sum(originals.values()) / len(originals))
    return (originals[one.seed] - one.score) / size if size else None
