"""A study in MLflow: a run for it, below that one for each cell and seed, and for each curve, which
is found again by its tag ``papa.key``. What MLflow lacks because it failed is written at the end.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError
from papa.files import scratch_beside, sha256_of_json
from papa.spec import StudySpec
from papa.spec.orders import Cell
from papa.spec.task import LOSS
from papa.storage.artifacts import ArtifactReference, read_metadata, verified
from papa.storage.store import Store
from papa.study.locks import claimed
from papa.study.results import StudyPart
from papa.study.stages.aggregate import versions
from papa.study.stages.probe import read_scores
from papa.study.step import Step
from papa.study.steps import StudySteps

SQLITE = "sqlite:///"
KEY, ROLE = "papa.key", "papa.role"
_NOTE = {
    "mlflow.note.content": "A run whose tag papa.role is study is a study, with its report in "
    "results/report.html; below it are runs of its cells by seed (cell) and of its curves (curve), "
    "over the share of input-dependent heads, which is the step in percent, rounded up."
}
_INTERVAL = {"": "mean", "_low": "low", "_high": "high"}
_ENVIRONMENT = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # Requests are repeated for minutes otherwise.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI``, else SQLite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.root / 'mlflow.db'}"


def connect(address: str) -> Any:
    """A client of the MLflow at ``address``, where a missing SQLite file is made."""
    os.environ |= {**_ENVIRONMENT, **os.environ}
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    database = Path(address.removeprefix(SQLITE))
    with tracking_errors(address):
        if address.startswith(SQLITE) and not database.exists():
            # Whole: two processes that make its tables at once break each other.
            with scratch_beside(database) as scratch, suppress(FileExistsError):
                MlflowClient(f"{SQLITE}{scratch}/made.db")
                os.link(scratch / "made.db", database)
        return MlflowClient(address)


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    engines = MlflowException, RequestException, SQLAlchemyError, CommandError, sqlite3.Error
    try:
        yield
    except (*engines, OSError) as error:
        words = str(error).strip() or type(error).__name__
        why = words.splitlines()[0].split(". ")[0].rstrip(".")
        passing = any(isinstance(one, RequestException) for one in (error, error.__context__))
        kind = TransientError if passing or "database is locked" in words else PapaError
        raise kind(
            f"MLflow at {address} cannot be used ({why}): see that it runs, nobody else locks its "
            "database, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD may write to it"
        ) from error


class Tracking:
    """Inside its block a study has a run in MLflow, which ends as the block does; where MLflow
    fails meanwhile ``failing`` gets a sentence. ``link`` is its page on a server, "" for a file.
    """

    def __init__(
        self, store: Store, study: StudySpec, steps: StudySteps, failing: Callable[[str], None]
    ) -> None:
        self.address, self.store, self.study = tracking_address(store), store, study
        self._steps, self._key, self._failing = steps, steps.steps[-1].key, failing
        self._local = self.address.startswith(SQLITE)
        self._losses: dict[str, list[tuple[int, Mapping[int, float], int]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._later: list[Callable[[], None]] = []
        self._ended = False

    def __enter__(self) -> Tracking:
        with self._writing():
            self.client = connect(self.address)
            self.experiment = self._experiment()
            spec = self.study.model_dump(mode="json", exclude={"execution", "name"})
            data = {
                f"papa.data.{part.task.name}": f"{part.text['task'].source.model_dump_json()} "
                f"{part.text['fingerprint']}"
                for part in self._steps.parts
            }
            params = {name: json.dumps(value) for name, value in spec.items()}
            tags = {ROLE: "study", "papa.versions": versions(), **data}
            run = self._run(self._key, self.study.name, tags, params)
            self.run_id, self._results = run.info.run_id, run.data.tags.get("papa.results")
            page = f"{self.address.rstrip('/')}/#/experiments/{self.experiment}/runs/{self.run_id}"
            self.link = "" if self._local else without_credentials(page)
            self._ended = run.info.status == "FINISHED"
            if not self._ended:
                self.client.update_run(self.run_id, "RUNNING")
        self._monitor: Any = None
        if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "").lower() in ("1", "true"):
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor as Monitor

            self._monitor = Monitor(self.run_id, resume_logging=True, tracking_uri=self.address)
            self._monitor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._monitor:
            self._monitor.finish()
        if kind is not None:
            with suppress(Exception):
                self.end("FAILED" if issubclass(kind, Exception) else "KILLED")

    def end(self, status: str) -> None:
        """The study ends so, unless it ended already."""
        if not self._ended:
            self._ended = True
            self.client.set_terminated(self.run_id, status)

    def epoch(self, step: str, epoch: int, losses: Mapping[int, float], ended: float) -> None:
        """A step has trained for one more epoch, until then, with these losses of each seed."""
        self._losses[step].append((epoch, losses, int(ended * 1000)))

    def step(self, step: Step) -> None:
        """What a step made: scores of cells, matrices, scores of heads, and losses by epoch."""
        scored = False
        for part in self._steps.parts:
            for cell in (cell for cell, probes in part.cells.items() if step in probes):
                scored = True
                self._soon(partial(self._cell, part, cell, step))
            made = {f"constants/{name}": of.artifact for name, of in part.constants.items()}
            for method, by_seed in part.rankings.items():
                made |= {f"{method}/seed-{seed}": of for seed, of in by_seed.items()}
            for name in (name for name, of in made.items() if of == step):
                folder = "/".join((*part.pair, name)).replace(":", ".")
                self._soon(partial(self._copy, step.reference(self.store), folder))
        if not scored and (losses := self._losses.pop(step.name, [])):
            name = f"{step.name.replace(' · ', '/')}/train_loss"
            means = [(name, sum(of.values()) / len(of), epoch, at) for epoch, of, at in losses]
            self._soon(partial(self._log, self.run_id, means))

    def results(self, artifact: ArtifactReference) -> None:
        """The results of the study, its curves, and all that is not written yet."""
        if self._ended and self._results == artifact.digest:
            return
        while self._later:
            with self._writing():
                self._later[0]()
            del self._later[0]
        with self._writing():
            self._copy(artifact, "results")
            self._curves(artifact)
            self.client.set_tag(self.run_id, "papa.results", artifact.digest)
            self.client.set_terminated(self.run_id)
        self._ended = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One after the other: a SQLite file has one writer, and another run may write the same."""
        with self._lock, tracking_errors(self.address), claimed(self.store, "mlflow"):
            yield

    def _soon(self, write: Callable[[], None]) -> None:
        if self._ended:
            return
        try:
            with self._writing():
                write()
        except PapaError as error:
            if not self._later:
                self._failing(f"MLflow gets the rest when the study is over: {error}")
            self._later.append(write)

    def _experiment(self) -> str:
        experiment = self.client.get_experiment_by_name(self.study.name)
        if experiment is None:
            place = (self.store.root / "mlartifacts").as_uri() if self._local else None
            return str(self.client.create_experiment(self.study.name, place, _NOTE))
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return str(experiment.experiment_id)

    def _run(self, key: str, name: str, tags: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """The run with a key, made where it is not there."""
        from mlflow.entities import Param

        if runs := self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'"):
            return runs[-1]
        tags = {"mlflow.source.name": "papa", "mlflow.user": "papa", KEY: key, **tags}
        tags = {tag: str(value) for tag, value in tags.items()}
        run = self.client.create_run(self.experiment, tags=tags, run_name=name)
        given = [Param(param, str(value)) for param, value in params.items()]
        self.client.log_batch(run.info.run_id, params=given)
        return run

    def _below(self, role: str, tags: Mapping[str, Any], params: Mapping[str, Any]) -> Any:
        """The run of a cell and a seed, or of a curve, which its tags tell apart."""
        key = sha256_of_json([self._key, role, tags])
        named = {**tags, ROLE: role, "mlflow.parentRunId": self.run_id}
        name = " · ".join(map(str, (self.study.name, *tags.values())))
        return self._run(key, name, named, params)

    def _cell(self, part: StudyPart, cell: Cell, step: Step) -> None:
        document, task = read_scores(step.reference(self.store)), part.task
        constant = len(document.constant_heads)
        shared = {"metric": task.metric, "slots": task.slots, "precision": part.encoder.precision}
        shared |= {f"probe.{name}": of for name, of in task.probe.model_dump().items()}
        for score in document.scores:
            tags = {**vars(cell), "seed": score.seed}
            run = self._below("cell", tags, {**tags, **shared, "constant_heads": constant})
            if run.info.status == "FINISHED":
                continue
            values = {
                "score": score.score,
                task.metric: score.score,
                "fraction": cell.fraction,
                "share_of_heads": 1 - constant / document.heads,
                "unseen_share": document.unseen_share,
                "seconds": score.seconds,
            }
            share = round(100 * cell.fraction + 0.49)
            points = [(name, of, share, 0) for name, of in values.items()]
            for epoch, of_seeds, at in self._losses.get(step.name, ()):
                points.append(("train_loss", of_seeds.get(score.seed), epoch, at))
            self._log(run.info.run_id, points)
            self.client.set_terminated(run.info.run_id)

    def _curves(self, artifact: ArtifactReference) -> None:
        """Mean scores over the fraction; in the study's run those at its ends, and its drop."""
        from papa.scores.summary import LINE, read_table

        table = read_table(verified(artifact) / "summary.csv")
        first, smallest = table.iloc[0], float(table["fraction"].min())
        at = (table[[*LINE[2:], "fraction"]] == [*first[LINE[2:]], smallest]).all(axis=1)
        cells = table[at]
        losses = cells["metric"] == LOSS
        ends = [
            # Of a loss a relative drop means nothing: its headline is the difference in nats.
            ("relative_drop", cells[~losses]["relative_drop"].mean(skipna=False), 0, 0),
            ("loss_difference", cells[losses]["difference"].mean(skipna=False), 0, 0),
        ]
        for line, rows in table.groupby(LINE, sort=False):
            tags, points = dict(zip(LINE, line, strict=True)), []
            run, where = self._below("curve", tags, tags), f"{tags['encoder']}/{tags['task']}"
            for row in rows.to_dict("records"):
                values = {f"score{end}": row[of] for end, of in _INTERVAL.items()}
                values |= {name: row[name] for name in ("fraction", "relative_drop", "difference")}
                share = round(100 * row["fraction"] + 0.49)
                points += [(name, of, share, 0) for name, of in values.items()]
                if row["fraction"] in (0, 1):
                    constant = f"all_heads_constant/{tags['constants']}"
                    name = f"{where}/{row['metric']}/{'original' if row['fraction'] else constant}"
                    ends += [(f"{name}{end}", row[of], 0, 0) for end, of in _INTERVAL.items()]
            for name in ("always_one_answer", "word_embeddings"):
                ends.append((f"{where}/baseline/{name}", rows[name].iloc[0], 0, 0))
            self._log(run.info.run_id, points)
            self.client.set_terminated(run.info.run_id)
        self._log(self.run_id, ends)

    def _log(self, run_id: str, points: Iterable[tuple[str, float | None, int, int]]) -> None:
        """Metrics as (name, value or None, step, milliseconds since 1970 or 0 for now)."""
        from mlflow.entities import Metric

        metrics = [
            Metric(name.replace(":", "."), float(of), at or int(time.time() * 1000), step)
            for name, of, step, at in points
            if of is not None and not math.isnan(of)
        ]
        self.client.log_batch(run_id, metrics)

    def _copy(self, artifact: ArtifactReference, folder: str) -> None:
        data = verified(artifact)
        for name in read_metadata(artifact)["files"]:
            inner = str(Path(folder) / Path(name).parent)
            self.client.log_artifact(self.run_id, str(data / name), inner)
