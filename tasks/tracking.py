"""Stage ``track``: a study's scores as MLflow runs.

One experiment a study, one parent run an encoder and task, one child run a cell. A run carries the key of
what it logs, so logging again adds nothing; child runs that a killed process left unfinished are deleted and
written anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from papa.artifacts import ArtifactReference, published, sha256_of_json
from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import StudySpec, TaskSpec
from tasks.aggregate import Point, specification
from tasks.probe import read_scores
from tasks.rank import ORDERS
from tasks.session import Session
from tasks.step import Step, identity
from tasks.store import Store

CELL = "papa.cell"
RUNS = "runs.json"
FRACTION_STEPS = 10_000
"""A metric's step is the input-dependent fraction in 1/10,000, so that charts draw score over fraction."""


@dataclass(frozen=True)
class Group:
    """One encoder on one task: a parent run.

    Attributes:
        model: the encoder's name in tables.
        encoder, task: which.
        points: the numbers of its points in the study.
        constants, rankings: labels of the constant matrices and rankings it used.
        artifacts: theirs, constants first.
    """

    model: str
    encoder: EncoderReference
    task: TaskSpec
    points: range
    constants: tuple[str, ...]
    rankings: tuple[str, ...]
    artifacts: tuple[ArtifactReference, ...] = ()

    def filled(self, artifacts: Sequence[ArtifactReference]) -> Group:
        """The group with its artifacts, in the order of ``constants`` and ``rankings``."""
        return replace(self, artifacts=tuple(artifacts))


@dataclass(frozen=True)
class Track(Step):
    """Log a study to MLflow.

    Attributes:
        study: the resolved specification.
        results: the study's results.
        points: every combination.
        groups: its parent runs.
        address: MLflow's tracking URI.
    """

    stage: ClassVar[str] = "track"
    version: ClassVar[int] = 1

    study: StudySpec
    results: ArtifactReference
    points: tuple[Point, ...]
    groups: tuple[Group, ...]
    address: str

    def spec(self) -> dict[str, Any]:
        return {"study": self.study.name, "address": without_password(self.address)}

    def upstream(self) -> dict[str, str | None]:
        return {"results": self.results.digest}

    def is_complete(self, store: Store) -> bool:
        local = self.address.removeprefix("sqlite:///")
        return super().is_complete(store) and (local == self.address or Path(local).is_file())

    def run(self, session: Session, progress: Progress) -> None:
        with published(self.folder(session.store), self.metadata()) as scratch:
            experiment = _Tracker(self, session.store, progress).log()
            document = {"address": without_password(self.address), **experiment}
            (scratch / RUNS).write_text(json.dumps(document, indent=1) + "\n")


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI`` where it is set, else sqlite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.mlflow_database}"


def without_password(address: str) -> str:
    """An address fit to be shown and stored."""
    parts = urlsplit(address)
    if parts.password is None:
        return address
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))


class _Tracker:
    def __init__(self, step: Track, store: Store, progress: Progress) -> None:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["DO_NOT_TRACK"] = "true"
        import logging

        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self.step, self.progress = step, progress
        self.client = MlflowClient(step.address)
        self.experiment = self._experiment(store)
        self.logged = self._logged()

    def log(self) -> dict[str, Any]:
        """Log what is not logged yet; returns the experiment and the parents' run ids."""
        parents, done = {}, 0
        self.progress(0, len(self.step.points))
        for group in self.step.groups:
            params = self._params(group)
            key = sha256_of_json(params)
            parent = self.logged.get(key) or self._start(f"{group.model} · {group.task.name}", key, params)
            self._artifacts(parent, group)
            self._curves(parent, group)
            originals = self._originals(group)
            for number in group.points:
                self._log_point(parent, key, params, self.step.points[number], originals)
                done += 1
                self.progress(done, len(self.step.points))
            self.client.set_terminated(parent)
            parents[f"{group.model} · {group.task.name}"] = parent
        return {"experiment": self.step.study.name, "experiment_id": self.experiment, "parents": parents}

    def _experiment(self, store: Store) -> str:
        name = self.step.study.name
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            if found.lifecycle_stage == "deleted":
                self.client.restore_experiment(found.experiment_id)
            return found.experiment_id
        in_store = self.step.address == f"sqlite:///{store.mlflow_database}"
        location = store.mlflow_artifacts.as_uri() if in_store else None
        return self.client.create_experiment(name, artifact_location=location)

    def _logged(self) -> dict[str, str]:
        """Run ids by the key of what they log; unfinished child runs are deleted."""
        found: dict[str, str] = {}
        token = None
        while True:
            page = self.client.search_runs([self.experiment], page_token=token, max_results=1000)
            for run in page:
                key = run.data.tags.get(CELL)
                unfinished = run.info.status != "FINISHED"
                if key and unfinished and "mlflow.parentRunId" in run.data.tags:
                    self.client.delete_run(run.info.run_id)
                elif key:
                    found[key] = run.info.run_id
            token = page.token
            if not token:
                return found

    def _start(self, name: str, key: str, params: dict[str, Any], parent: str | None = None) -> str:
        from mlflow.entities import Param

        tags = {"mlflow.runName": name, "mlflow.source.name": "papa", "mlflow.user": "papa", CELL: key}
        if parent:
            tags["mlflow.parentRunId"] = parent
        run = self.client.create_run(self.experiment, tags=tags, run_name=name).info.run_id
        values = [Param(name, str(value)) for name, value in params.items()]
        self.client.log_batch(run, params=values)
        return run

    def _params(self, group: Group) -> dict[str, Any]:
        """What identifies a parent run; repeated on its children, so that a search finds them."""
        task, probe, study = group.task, group.task.probe, self.step.study
        return {
            "model": group.model,
            "encoder": group.encoder.name,
            "encoder_revision": group.encoder.revision,
            "encoder_digest": group.encoder.digest[:16],
            **{name: value for name, value in identity(group.encoder).items() if name != "digest"},
            "task": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "slots": task.slots,
            "train_rows": task.train_rows,
            "validation_rows": task.validation_rows,
            "sample_seed": task.sample_seed,
            **{f"probe.{name}": value for name, value in probe.model_dump(mode="json").items()},
            **{f"ranking.{name}": value for name, value in study.ranking.model_dump(mode="json").items()},
            **{f"layout.{name}": value for name, value in study.layout.model_dump(mode="json").items()},
            "features.dtype": study.features.dtype,
        }

    def _log_point(
        self, parent: str, group_key: str, params: dict[str, Any], point: Point, originals: list[float]
    ) -> None:
        from mlflow.entities import Metric

        document = read_scores(point.scores.folder)
        step, now = round(point.fraction * FRACTION_STEPS), int(time.time() * 1000)
        for one in document["scores"]:
            cell = {
                "constants": point.constants,
                "order": point.order,
                "fraction": point.fraction,
                "constant_heads": len(document["constant_heads"]),
                "seed": one["seed"],
            }
            key = sha256_of_json({"group": group_key, **cell, "scores": point.scores.digest})
            if key in self.logged:
                continue
            name = f"{point.constants} · {point.order} · {point.fraction:g} · seed {one['seed']}"
            run = self._start(name, key, {**params, **cell}, parent)
            metrics = {
                "score": one["score"],
                "seconds": one["seconds"],
                "cell_seconds": document["seconds"],
                "coverage": document["coverage"],
                "relative_drop": _relative_drop(originals, one["score"]),
            }
            self.client.log_batch(
                run,
                metrics=[Metric(name, float(value), now, step) for name, value in metrics.items() if value is not None],
            )
            self.client.set_terminated(run)

    def _originals(self, group: Group) -> list[float]:
        """The scores with every head input-dependent; empty where the study lacks them."""
        for number in group.points:
            point = self.step.points[number]
            if point.fraction == 1:
                return [one["score"] for one in read_scores(point.scores.folder)["scores"]]
        return []

    def _curves(self, parent: str, group: Group) -> None:
        """The mean score over fraction, one metric a constants and order, on the parent run."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        run = self.client.get_run(parent)
        metrics = []
        for number in group.points:
            point = self.step.points[number]
            scores = [one["score"] for one in read_scores(point.scores.folder)["scores"]]
            name = f"score/{point.constants.replace(':', '.')}/{point.order}"
            step = round(point.fraction * FRACTION_STEPS)
            metrics.append(Metric(name, sum(scores) / len(scores), now, step))
        names = {metric.key for metric in metrics}
        known = {
            (name, metric.step, metric.value)
            for name in names & set(run.data.metrics)
            for metric in self.client.get_metric_history(parent, name)
        }
        fresh = [one for one in metrics if (one.key, one.step, one.value) not in known]
        for start in range(0, len(fresh), 1000):
            self.client.log_batch(parent, metrics=fresh[start : start + 1000])

    def _artifacts(self, parent: str, group: Group) -> None:
        have = {file.path for kind in ("constants", "head_order") for file in self.client.list_artifacts(parent, kind)}
        for label, one in zip((*group.constants, *group.rankings), group.artifacts, strict=True):
            kind = "head_order" if (one.folder / ORDERS).is_file() else "constants"
            place = f"{kind}/{label.replace(':', '.')}"
            if place in have:
                continue
            for path in sorted(one.folder.iterdir()):
                if path.name == ORDERS or path.suffix == ".safetensors":
                    self.client.log_artifact(parent, str(path), place)
        self.client.log_text(parent, specification(self.step.study), "study.yaml")
        for path in sorted(self.step.results.folder.iterdir()):
            if path.suffix in (".csv", ".md", ".html", ".png", ".svg", ".parquet"):
                self.client.log_artifact(parent, str(path), "results")


def _relative_drop(originals: Sequence[float], score: float) -> float | None:
    from papa.scores.intervals import relative_drop

    if not originals:
        return None
    return relative_drop(sum(originals) / len(originals), score)
