"""A study in MLflow: a run for it, below that one for each cell and seed, and for each curve.

Tasks write what they found as they end. A run is found again by its tag ``papa.key``, so a study
that goes on goes on in its run, and what is there already is not written twice. Where MLflow fails
meanwhile the study goes on; what it lacks is written when the results are there.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from papa.errors import PapaError
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference, read_metadata, sha256_of_json, verify
from papa.study.results import StudyPart
from papa.study.stages.probe import read_scores
from papa.study.step import Step
from papa.study.steps import StudySteps
from papa.study.store import Store, claimed
from tasks.mlflow import SQLITE, TrackingError, connect, tracking_address, tracking_errors

if TYPE_CHECKING:
    from mlflow.entities import Run

RESULTS = "results"
"""Where a study's run keeps its results."""
KEY, ROLE, PARENT = "papa.key", "papa.role", "mlflow.parentRunId"
_NOTE = {
    "mlflow.note.content": "A run with the tag `papa.role = study` is a study; "
    "`results/report.html` among its files is its report. Below it are its cells, a run a seed "
    "(`papa.role = cell`), and its curves (`papa.role = curve`): `score`, `score_low` and "
    "`score_high` over the input-dependent fraction of heads, which is the step in 1/10,000."
}


class Tracking:
    """Inside its block a study has a run in MLflow, which ends as the block does.

    ``told`` is called with a sentence where MLflow fails meanwhile.
    """

    def __init__(
        self, store: Store, study: StudySpec, steps: StudySteps, told: Callable[[str], None]
    ) -> None:
        self.address, self.store, self.study = tracking_address(store), store, study
        self._steps, self._key, self._told = steps, steps.steps[-1].key, told
        self._local = self.address.startswith(SQLITE)
        self._losses: dict[str, list[tuple[int, Mapping[int, float], int]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._later: list[Callable[[], None]] = []
        self._finished, self._monitor = False, ExitStack()
        self.interrupted = False

    def __enter__(self) -> Tracking:
        with self._writing():
            self.client = connect(self.address)
            self.experiment = self._experiment()
            spec = self.study.model_dump(mode="json", exclude={"execution", "name"})
            texts = {part.task.name: part.text for part in self._steps.parts}
            data = {
                f"papa.data.{name}": f"{of['task'].source.model_dump_json()} {of['fingerprint']}"
                for name, of in texts.items()
            }
            params = {name: json.dumps(value) for name, value in spec.items()}
            run = self._found(self._key, self.study.name, {ROLE: "study", **data}, params)
            self.run_id, self._results = run.info.run_id, run.data.tags.get("papa.results")
            self._finished = run.info.status == "FINISHED"
            if not self._finished:
                self.client.update_run(self.run_id, "RUNNING")
        if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "").lower() in ("1", "true"):
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor as Monitor

            monitor = Monitor(self.run_id, resume_logging=True, tracking_uri=self.address)
            monitor.start()
            self._monitor.callback(monitor.finish)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._monitor.close()
        if kind is not None and not self.interrupted:
            with suppress(Exception):
                self.end("FAILED" if issubclass(kind, Exception) else "KILLED")

    def end(self, status: str) -> None:
        """The study ends so, unless it is finished."""
        if not self._finished:
            self.client.set_terminated(self.run_id, status)

    @property
    def link(self) -> str:
        """Where a server's pages show the study; "" for a SQLite file."""
        server = urlsplit(self.address)
        server = server._replace(netloc=server.netloc.rpartition("@")[2])
        page = (
            f"{urlunsplit(server).rstrip('/')}/#/experiments/{self.experiment}/runs/{self.run_id}"
        )
        return "" if self._local else page

    def epoch(self, step: str, epoch: int, losses: Mapping[int, float], ended: float) -> None:
        """A step has trained for one more epoch, until then, with these losses of each seed."""
        self._losses[step].append((epoch, losses, int(ended * 1000)))

    def cells(self, step: Step) -> None:
        """The scores that a step gives to cells, and what its probes lost by epoch."""
        cells = [(part, *one) for part in self._steps.parts for one in part.cells.items()]
        for part, cell in ((part, cell) for part, cell, probes in cells if step in probes):
            self._soon(partial(self._cell, part, cell, step))

    def losses(self, step: Step) -> None:
        """What a step that scores no cell lost by epoch: means over seeds, in the study's run."""
        name = f"{step.name.replace(' · ', '/')}/train_loss"
        points = [
            (name, sum(of.values()) / len(of), at, epoch)
            for epoch, of, at in self._losses.pop(step.name, [])
        ]
        self._soon(partial(self._log, self.run_id, points))

    def files(self, step: Step) -> None:
        """The matrices, or the scores of heads, that a step made."""
        for part in self._steps.parts:
            made = {f"constants/{name}": of.artifact for name, of in part.constants.items()}
            for method, by_seed in part.rankings.items():
                made |= {f"{method}/seed-{seed}": of for seed, of in by_seed.items()}
            for name in (name for name, of in made.items() if of == step):
                folder = "/".join((*part.pair, name)).replace(":", ".")
                self._soon(partial(self._copy, step.reference(self.store), folder))

    def results(self, found: ArtifactReference) -> None:
        """The results of the study, its curves, and all that is not written yet."""
        if self._finished and self._results == found.digest:
            return
        while self._later:
            with self._writing():
                self._later[0]()
            del self._later[0]
        with self._writing():
            self._copy(found, RESULTS)
            self._curves(found)
            self.client.set_tag(self.run_id, "papa.results", found.digest)
            self.client.set_terminated(self.run_id)
        self._finished = True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One after the other: a SQLite file has one writer, and another run may write the same."""
        with self._lock, tracking_errors(self.address), claimed(self.store, "mlflow"):
            yield

    def _soon(self, write: Callable[[], None]) -> None:
        if self._finished:
            return
        try:
            with self._writing():
                write()
        except PapaError as error:
            if not self._later:
                self._told(f"MLflow gets the rest when the study is over: {error}")
            self._later.append(write)

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.study.name)
        if found is None:
            place = self.store.mlflow_artifacts.as_uri() if self._local else None
            return str(self.client.create_experiment(self.study.name, place, _NOTE))
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        # Who may read it may not write to it.
        self.client.set_experiment_tag(found.experiment_id, *next(iter(_NOTE.items())))
        return str(found.experiment_id)

    def _found(
        self, key: str, name: str, tags: Mapping[str, Any], params: Mapping[str, Any]
    ) -> Run:
        """The run with a key, made where it is not there."""
        from mlflow.entities import Param

        if runs := self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'"):
            return runs[-1]
        tags = {"mlflow.source.name": "papa", "mlflow.user": "papa", KEY: key, **tags}
        run = self.client.create_run(
            self.experiment, tags={tag: str(value) for tag, value in tags.items()}, run_name=name
        )
        given = [Param(param, str(value)) for param, value in params.items()]
        self.client.log_batch(run.info.run_id, params=given)
        return run

    def _below(self, role: str, tags: Mapping[str, Any], params: Mapping[str, Any]) -> Run:
        """The run of a cell and a seed, or of a curve, which its tags tell apart."""
        key = sha256_of_json([self._key, role, tags])
        name = " · ".join(map(str, tags.values()))
        return self._found(key, name, {**tags, ROLE: role, PARENT: self.run_id}, params)

    def _cell(self, part: StudyPart, cell: Cell, step: Step) -> None:
        document = read_scores(step.reference(self.store))
        for score in document.scores:
            tags = {**cell.columns(), "seed": score.seed}
            params = {
                **tags,
                "metric": part.task.metric,
                "slots": part.task.slots,
                "precision": part.encoder.precision,
                "constant_heads": len(document.constant_heads),
                **{f"probe.{name}": of for name, of in part.task.probe.model_dump().items()},
            }
            run = self._below("cell", tags, params)
            if run.info.status == "FINISHED":
                continue
            values = {
                "score": score.score,
                part.task.metric: score.score,
                "fraction": cell.fraction,
                "share_of_heads": 1 - len(document.constant_heads) / document.heads,
                "unseen_share": document.unseen_share,
                "seconds": score.seconds,
            }
            points = [(name, of, _now(), _step_of(cell.fraction)) for name, of in values.items()]
            for epoch, of_seeds, at in self._losses.get(step.name, ()):
                points.append(("train_loss", of_seeds.get(score.seed), at, epoch))
            self._log(run.info.run_id, points)
            self.client.set_terminated(run.info.run_id)

    def _curves(self, found: ArtifactReference) -> None:
        """Mean scores over the fraction with their intervals; and in the study's own run those at
        both ends, and what they are worth.
        """
        from papa.scores.summary import LINE, read_table

        ends = []
        for line, rows in read_table(found.folder / "summary.csv").groupby(LINE, sort=False):
            tags, points = dict(zip(LINE, line, strict=True)), []
            run, where = self._below("curve", tags, tags), f"{tags['encoder']}/{tags['task']}"
            for row in rows.to_dict("records"):
                values = {f"score{end}": row[of] for end, of in _ENDS.items()}
                values |= {name: row[name] for name in ("fraction", "relative_drop")}
                points += [
                    (name, of, _now(), _step_of(row["fraction"])) for name, of in values.items()
                ]
                if row["fraction"] in (0, 1):
                    constant = f"all_heads_constant/{tags['constants']}"
                    name = f"{where}/{row['metric']}/{'original' if row['fraction'] else constant}"
                    ends += [(f"{name}{end}", row[of], _now(), 0) for end, of in _ENDS.items()]
            for name in ("always_one_answer", "word_embeddings"):
                ends.append((f"{where}/baseline/{name}", rows[name].iloc[0], _now(), 0))
            self._log(run.info.run_id, points)
            self.client.set_terminated(run.info.run_id)
        self._log(self.run_id, ends)

    def _log(self, run_id: str, points: Iterable[tuple[str, float | None, int, int]]) -> None:
        """Metrics as (name, value, milliseconds, step), where there is a value."""
        from mlflow.entities import Metric

        known = [(name, of, at, step) for name, of, at, step in points if of is not None]
        metrics = [
            Metric(name.replace(":", "."), float(of), at, step)
            for name, of, at, step in known
            if not math.isnan(of)
        ]
        self.client.log_batch(run_id, metrics)

    def _copy(self, found: ArtifactReference, folder: str) -> None:
        """Copy the files of an artifact that its digests name; through no link."""
        verify(found.folder)
        place = self.store.mlflow_artifacts
        there = (place, place / self.run_id, *(place / self.run_id).rglob("*"))
        if links := [path for path in there if self._local and path.is_symlink()]:
            raise TrackingError(
                f"{links[0]} is a link, and nothing is written through it: remove it"
            )
        for name in read_metadata(found.folder)["files"]:
            inner = str(Path(folder) / Path(name).parent)
            self.client.log_artifact(self.run_id, str(found.folder / name), inner)


_ENDS = {"": "mean", "_low": "low", "_high": "high"}


def _step_of(fraction: float) -> int:
    """A fraction as a metric's step, so that charts draw scores over fractions."""
    return round(fraction * 10_000)


def _now() -> int:
    """In ms, as MLflow counts."""
    return int(time.time() * 1000)
