"""A study in MLflow: a run for it, below that one for each cell and seed, and for each curve. A run
is found again by its tags ``papa.key`` and ``papa.store``. All is written beside the study.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from papa.credentials import without_credentials
from papa.files import sha256_of_json
from papa.scores.summary import read_table
from papa.spec import StudySpec
from papa.spec.columns import LINE
from papa.spec.orders import Cell
from papa.spec.task import LOSS
from papa.storage.artifacts import ArtifactReference, read_metadata, verified
from papa.storage.locks import claimed
from papa.storage.store import Store
from papa.tasks.aggregate import versions
from papa.tasks.background_calls import BackgroundCalls
from papa.tasks.cell import read_scores
from papa.tasks.mlflow_address import (
    artifact_folder,
    connect,
    database_of,
    tracking_address,
    tracking_errors,
)
from papa.tasks.pair_steps import PairSteps
from papa.tasks.pipeline import Pipeline
from papa.tasks.step import Step

if TYPE_CHECKING:
    from pandas import DataFrame

KEY = "papa.key"
ROLE = "papa.role"
STORE = "papa.store"
_NOTE = {
    "mlflow.note.content": "A run with the tag papa.role = study is a study, with its report in "
    "results/report.html. Nested runs are its cells by seed (cell) and its curves (curve); "
    "the step of a curve is the share of input-dependent heads in percent, rounded up."
}
_LOCK_SECONDS = 120.0
"""How long a call waits for another study that writes to the same database."""
_INTERVAL = {"": "mean", "_low": "low", "_high": "high"}
Point = tuple[str, float | None, int, int]
"""A metric: its name, its value if it has one, step, and milliseconds since 1970 or 0 for now."""


class Tracking:
    """Inside its block a study has a run in MLflow, which ends as the block does. Nothing waits for
    MLflow but the end of the block, for a bounded time. ``on_failure`` gets a sentence where MLflow
    fails, and where it lacks something in the end, which the next run of the study then writes.
    ``link`` is the run's page on a server, "" for a file.
    """

    def __init__(
        self, store: Store, study: StudySpec, pipeline: Pipeline, on_failure: Callable[[str], None]
    ) -> None:
        self.address = tracking_address()
        self.store = store
        self.study = study
        self._pipeline = pipeline
        self._key = pipeline.steps[-1].key
        self._on_failure = on_failure
        self._database = database_of(self.address)
        self._calls = BackgroundCalls(on_failure)
        self._ended = False

    def __enter__(self) -> Tracking:
        self.client = connect(self.address)
        with self._writing():
            self.experiment = self._find_or_create_experiment()
            spec = self.study.model_dump(mode="json", exclude={"execution", "name"})
            data = {
                f"papa.data.{pair.task.name}": f"{pair.text['task'].source.model_dump_json()} "
                f"{pair.text['fingerprint']}"
                for pair in self._pipeline.pairs
            }
            params = {name: json.dumps(value) for name, value in spec.items()}
            tags = {ROLE: "study", "papa.versions": versions(), **data}
            run = self._find_or_create(self._key, self.study.name, tags, params)
            self.run_id = run.info.run_id
            self._results = run.data.tags.get("papa.results")
            page = f"{self.address.rstrip('/')}/#/experiments/{self.experiment}/runs/{self.run_id}"
            self.link = "" if self._database else without_credentials(page)
            self._ended = self._was_finished = run.info.status == "FINISHED"
            if not self._ended:
                self.client.update_run(self.run_id, "RUNNING")
        self._calls.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            status = "FAILED" if issubclass(kind, Exception) else "KILLED"
            self._write_beside(partial(self.end, status))
        failure = self._calls.finish()
        if failure:
            self._on_failure(
                f"warning: MLflow did not record all of this study ({failure}); its next "
                "'papa run' logs the rest"
            )

    def end(self, status: str) -> None:
        """Set the study's final state, unless it has one already."""
        if not self._ended:
            self._ended = True
            self.client.set_terminated(self.run_id, status)

    def log_step(self, step: Step) -> None:
        """Write what a step computed: scores of cells, matrices, scores of heads, and losses by
        epoch.
        """
        if self._was_finished:
            return
        scored = False
        for pair in self._pipeline.pairs:
            for cell, scorings in pair.cells.items():
                if step in scorings:
                    scored = True
                    self._write_beside(partial(self._log_cell, pair, cell, step))
            steps_by_name = {
                f"constants/{name}": substitute.stored_by
                for name, substitute in pair.substitutes.items()
            }
            for method, by_seed in pair.rankings.items():
                for seed, ranking in by_seed.items():
                    steps_by_name[f"{method}/seed-{seed}"] = ranking
            for name, computed in steps_by_name.items():
                if computed == step:
                    folder = "/".join((*pair.names, name)).replace(":", ".")
                    self._write_beside(partial(self._upload, step.reference(self.store), folder))
        if not scored:
            self._write_beside(partial(self._log_losses, step))

    def log_results(self, artifact: ArtifactReference) -> None:
        """Write the results of the study and its curves, and end its run."""
        if self._was_finished and self._results == artifact.digest:
            return
        self._write_beside(partial(self._upload, artifact, "results"))
        table = read_table(verified(artifact) / "summary.csv")
        for line, rows in table.groupby(LINE, sort=False):
            self._write_beside(partial(self._log_curve, line, rows))
        self._write_beside(partial(self._log_points, self.run_id, _points_of_study(table)))
        self._write_beside(partial(self._finish, artifact.digest))

    def _finish(self, digest: str) -> None:
        self.client.set_tag(self.run_id, "papa.results", digest)
        self.end("FINISHED")

    def _write_beside(self, job: Callable[[], None]) -> None:
        def write() -> None:
            with self._writing():
                job()

        self._calls.add(write)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Let writers take turns: a SQLite file has one writer, and another run of the store may
        write the same.
        """
        lock: AbstractContextManager[object] = claimed(self.store, "mlflow")
        if self._database:
            lock = FileLock(f"{self._database}.lock", timeout=_LOCK_SECONDS)
        with tracking_errors(self.address), lock:
            yield

    def _find_or_create_experiment(self) -> str:
        experiment = self.client.get_experiment_by_name(self.study.name)
        if experiment is None:
            files = artifact_folder(self._database).as_uri() if self._database else None
            return str(self.client.create_experiment(self.study.name, files, _NOTE))
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _find_or_create(
        self, key: str, name: str, tags: Mapping[str, Any], params: Mapping[str, Any]
    ) -> Any:
        """Return the run with a key that this store wrote, created where there is none: equal
        studies of two stores are two.
        """
        from mlflow.entities import Param

        store = self.store.address
        for run in reversed(self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'")):
            if run.data.tags.get(STORE) == store:
                return run
        tags = {"mlflow.source.name": "papa", "mlflow.user": "papa", KEY: key, STORE: store, **tags}
        tags = {tag: str(value) for tag, value in tags.items()}
        run = self.client.create_run(self.experiment, tags=tags, run_name=name)
        logged = [Param(param, str(value)) for param, value in params.items()]
        self.client.log_batch(run.info.run_id, params=logged)
        return run

    def _nested_run(self, role: str, tags: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """Return the run of a cell and a seed, or of a curve, which its tags tell apart."""
        key = sha256_of_json([self._key, role, tags])
        all_tags = {**tags, ROLE: role, "mlflow.parentRunId": self.run_id}
        name = " · ".join(map(str, (self.study.name, *tags.values())))
        return self._find_or_create(key, name, all_tags, params)

    def _log_losses(self, step: Step) -> None:
        """Write the losses of a step that scores no cell."""
        name = f"{step.name.replace(' · ', '/')}/train_loss"
        self._log_points(self.run_id, _points_of_losses(name, step.reference(self.store)))

    def _log_cell(self, pair: PairSteps, cell: Cell, step: Step) -> None:
        artifact = step.reference(self.store)
        document = read_scores(artifact)
        task = pair.task
        constant = len(document.constant_heads)
        heads = pair.encoder.layers * pair.encoder.heads
        shared = {"metric": task.metric, "slots": task.slots, "precision": pair.encoder.precision}
        shared |= {f"probe.{name}": value for name, value in task.probe.model_dump().items()}
        for score in document.scores:
            tags = {**vars(cell), "seed": score.seed}
            run = self._nested_run("cell", tags, {**tags, **shared, "constant_heads": constant})
            if run.info.status == "FINISHED":
                continue
            values = {
                "score": score.score,
                task.metric: score.score,
                "fraction": cell.fraction,
                "share_of_heads": 1 - constant / heads,
                "unseen_share": document.unseen_share,
                "seconds": score.seconds,
            }
            percent = _percent_up(cell.fraction)
            points = [(name, value, percent, 0) for name, value in values.items()]
            points += _points_of_losses("train_loss", artifact)
            self._log_points(run.info.run_id, points)
            self.client.set_terminated(run.info.run_id)

    def _log_curve(self, line: Sequence[str], rows: DataFrame) -> None:
        """Write mean scores over the fraction."""
        tags = dict(zip(LINE, line, strict=True))
        run = self._nested_run("curve", tags, tags)
        points: list[Point] = []
        for row in rows.to_dict("records"):
            values = {f"score{end}": row[column] for end, column in _INTERVAL.items()}
            values |= {name: row[name] for name in ("fraction", "relative_drop", "difference")}
            percent = _percent_up(row["fraction"])
            points += [(name, value, percent, 0) for name, value in values.items()]
        self._log_points(run.info.run_id, points)
        self.client.set_terminated(run.info.run_id)

    def _log_points(self, run_id: str, points: Iterable[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name.replace(":", "."), float(value), ended or int(time.time() * 1000), step)
            for name, value, step, ended in points
            if value is not None and not math.isnan(value)
        ]
        self.client.log_batch(run_id, metrics)

    def _upload(self, artifact: ArtifactReference, folder: str) -> None:
        data = verified(artifact)
        for name in read_metadata(artifact)["files"]:
            inner = str(Path(folder) / Path(name).parent)
            self.client.log_artifact(self.run_id, str(data / name), inner)


def _percent_up(fraction: float) -> int:
    """Return a share in percent, rounded up, as a step of MLflow is a whole number. Up to 0.01
    above a whole number is rounding error.
    """
    return math.ceil(100 * fraction - 0.01)


def _points_of_losses(name: str, artifact: ArtifactReference) -> list[Point]:
    """Return the training losses by epoch that an artifact's metadata hold."""
    losses = read_metadata(artifact).get("train_losses", ())
    return [(name, loss, epoch, int(1000 * ended)) for epoch, loss, ended in losses]


def _points_of_study(table: DataFrame) -> list[Point]:
    """Return the mean drop at the smallest fraction, of the first constants and order; and by
    encoder and task the scores without constant heads, with all of them constant, and of the
    baselines.
    """
    first = table.iloc[0]
    smallest = float(table["fraction"].min())
    columns = [*LINE[2:], "fraction"]
    cells = table[(table[columns] == [*first[LINE[2:]], smallest]).all(axis=1)]
    losses = cells["metric"] == LOSS
    points: list[Point] = [
        # Of a loss a relative drop means nothing: its headline is the difference in nats.
        ("relative_drop", cells[~losses]["relative_drop"].mean(skipna=False), 0, 0),
        ("loss_difference", cells[losses]["difference"].mean(skipna=False), 0, 0),
    ]
    for line, rows in table.groupby(LINE, sort=False):
        encoder, task, constants, *_ = line
        for row in rows[rows["fraction"].isin([0, 1])].to_dict("records"):
            which = "original" if row["fraction"] else f"all_heads_constant/{constants}"
            name = f"{encoder}/{task}/{row['metric']}/{which}"
            points += [(f"{name}{end}", row[column], 0, 0) for end, column in _INTERVAL.items()]
        for name in ("always_one_answer", "word_embeddings"):
            points.append((f"{encoder}/{task}/baseline/{name}", rows[name].iloc[0], 0, 0))
    return points
