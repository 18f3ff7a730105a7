"""A study's scores as MLflow runs.

One experiment a study, one parent run for each encoder and task, one child run for each cell and seed. A run carries
the key of what it logs, so logging again adds nothing, and what a killed process left unfinished is finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata, sha256_of_json, verify
from tasks.mlflow_client import database_of, settled, study_experiment
from tasks.probe import ProbeScores, ScoredSeed, read_scores
from tasks.rank import ORDERS
from tasks.results import ScoredCell, in_threads, relative_drop, worth_of
from tasks.step import identity
from tasks.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

CELL = "papa.cell"
PARENT = "mlflow.parentRunId"
RESULTS = "results"
"""Where a parent run keeps its study's results."""
BEATS_BASELINE = "papa.beats_baseline"
"""The tag that says whether drops tell anything: ``yes``, ``no``, or why nobody can tell."""
FRACTION_STEPS = 10_000
"""A metric's step is the input-dependent fraction in 1/10,000, so that charts draw score over fraction."""
_AT_ONCE = 8
"""Cells logged to a server at a time; a SQLite file has one writer."""
NOTE = (
    "A run is one encoder on one task; its child runs are cells. "
    "Charts: set the x-axis (gear) to the metric `fraction`, the share of heads that stay input-dependent."
)
"""What MLflow shows above a study's runs."""


@dataclass(frozen=True)
class ParentRun:
    """One encoder on one task.

    Attributes:
        encoder_label: the encoder's name in tables.
        encoder, task: which.
        cells: its cells, scored.
        constants, rankings: the constant matrices and rankings it used, by the label of the constant matrices.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    cells: tuple[ScoredCell, ...]
    constants: Mapping[str, ArtifactReference]
    rankings: Mapping[str, ArtifactReference]

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.encoder_label} · {self.task.name}"

    @property
    def artifacts(self) -> list[tuple[str, ArtifactReference]]:
        """What it used, with its label: constants first."""
        return [*self.constants.items(), *self.rankings.items()]

    def parameters(self, study: StudySpec) -> dict[str, Any]:
        """What identifies a parent run; repeated on its children, so that a search finds them."""
        task, probe = self.task, self.task.probe
        return {
            "model": self.encoder_label,
            "encoder": self.encoder.name,
            "encoder_revision": self.encoder.revision,
            "encoder_digest": self.encoder.digest[:16],
            **{name: value for name, value in identity(self.encoder).items() if name != "digest"},
            "task": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "positive": task.positive,
            "slots": task.slots,
            "train_rows": task.train_rows,
            "validation_rows": task.validation_rows,
            "sample_seed": task.sample_seed,
            **{f"probe.{name}": value for name, value in probe.model_dump(mode="json").items()},
            **{f"ranking.{name}": value for name, value in study.ranking.model_dump(mode="json").items()},
            **{f"layout.{name}": value for name, value in study.layout.model_dump(mode="json").items()},
            "features.dtype": study.features.dtype,
        }


def log_files(client: MlflowClient, run: str, parent: ParentRun, results: ArtifactReference) -> None:
    """Attach to a parent run what it used and the study's results; the results replace older ones.

    Args:
        client: of the MLflow to log to.
        run: its id.
        parent: what it stands for.
        results: the study's results.

    Raises:
        ArtifactError: a file of theirs is damaged.
    """
    have = {file.path for kind in ("constants", "head_order") for file in client.list_artifacts(run, kind)}
    for label, one in parent.artifacts:
        folder = one.folder
        files = read_metadata(folder)["files"]
        kind = "head_order" if ORDERS in files else "constants"
        place = f"{kind}/{label.replace(':', '.')}"
        if place in have:
            continue
        verify(folder)
        for name in sorted(files):
            if name == ORDERS or name.endswith(".safetensors"):
                client.log_artifact(run, str(folder / name), place)
    verify(results.folder)
    client.log_artifacts(run, str(results.folder), RESULTS)


class RunLogger:
    """Logs a study; what is logged already stays.

    Args:
        client: of the MLflow to log to.
        store: where files go if no server keeps them.
        study: the resolved specification.
        results: the study's results.
    """

    def __init__(self, client: MlflowClient, store: Store, study: StudySpec, results: ArtifactReference) -> None:
        self.client, self.study, self.results = client, study, results
        self.worth = worth_of(results)
        self.experiment = study_experiment(client, study.name, store, note=NOTE)
        self.runs = {run.data.tags[CELL]: run for run in self._search(f"tags.`{CELL}` IS NOT NULL")}

    def log(self, parents: Sequence[ParentRun], progress: Progress) -> dict[str, Any]:
        """Log what is not logged yet; returns the experiment and the parents' run ids."""
        ids: dict[str, str] = {}
        done, total = 0, sum(len(parent.cells) for parent in parents)
        threads = 1 if database_of(self.client.tracking_uri) else _AT_ONCE
        progress(0, total)
        for parent in parents:
            run = ids[parent.name] = self._parent(parent)
            verdict = self.worth[parent.encoder_label, parent.task.name].verdict
            settled(partial(self.client.set_tag, run, BEATS_BASELINE, verdict))
            log_files(self.client, run, parent, self.results)
            settled(partial(self._log_curves, run, parent))
            created: dict[str, Run] = {}
            original = next((scored for scored in parent.cells if scored.cell.fraction == 1), None)
            originals = {one.seed: one.score for *_, one in _seed_scores(original)} if original else {}
            log = partial(self._log_cell, run, parent, originals)
            for new in in_threads(log, parent.cells, threads):
                created |= new
                done += 1
                progress(done, total)
            if created:
                self._agree(created, f"tags.`{PARENT}` = '{run}'")
            self.client.set_terminated(run)
        return {"experiment": self.study.name, "experiment_id": self.experiment, "parents": ids}

    def _search(self, condition: str) -> Iterator[Run]:
        """Runs of the experiment, newest first."""
        token = None
        while True:
            page = self.client.search_runs([self.experiment], condition, page_token=token, max_results=1000)
            yield from page
            token = page.token
            if not token:
                return

    def _parent(self, parent: ParentRun) -> str:
        params = parent.parameters(self.study)
        key = sha256_of_json(params)
        if key not in self.runs:
            self.runs[key] = self._agree({key: self._create(parent.name, key)}, f"tags.`{CELL}` = '{key}'")[key]
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
        settled(lambda: self.client.log_batch(run.info.run_id, params=values, metrics=metrics))

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

    def _log_cell(
        self, parent_id: str, parent: ParentRun, originals: Mapping[int, float], scored: ScoredCell
    ) -> dict[str, Run]:
        """One child run for each seed; returns those that were not there yet, by key.

        Args:
            parent_id: the run of ``parent``.
            parent: the cell's encoder on its task.
            originals: the score of each seed with every head input-dependent; empty where the study lacks them.
            scored: the cell.
        """
        from mlflow.entities import Metric

        params, cell = parent.parameters(self.study), scored.cell
        verdict = self.worth[parent.encoder_label, parent.task.name].verdict
        step = round(cell.fraction * FRACTION_STEPS)
        created = {}
        for found, document, one in _seed_scores(scored):
            own = {
                "constants": cell.constants,
                "order": cell.order,
                "fraction": cell.fraction,
                "constant_heads": len(document.constant_heads),
                "seed": one.seed,
            }
            key = sha256_of_json({"group": sha256_of_json(params), **own, "scores": found.digest, "verdict": verdict})
            run = self.runs.get(key)
            if run is not None and run.info.status == "FINISHED":
                continue
            if run is None:
                name = f"{cell.constants} · {cell.order} · {cell.fraction:g} · seed {one.seed}"
                run = created[key] = self._create(name, key, **{PARENT: parent_id, BEATS_BASELINE: verdict})
            metrics = {
                "fraction": cell.fraction,
                "share_of_heads": 1 - len(document.constant_heads) / document.heads,
                "score": one.score,
                "seconds": one.seconds,
                "cell_seconds": document.seconds,
                "coverage": document.unseen_share,
                "relative_drop": relative_drop(originals, one),
            }
            # The run's own time: whoever logs the same once more adds nothing.
            started = run.info.start_time
            known = {name: float(value) for name, value in metrics.items() if value is not None}
            self._log(run, {**params, **own}, [Metric(name, value, started, step) for name, value in known.items()])
            self.client.set_terminated(run.info.run_id)
        return created

    def _log_curves(self, parent_id: str, parent: ParentRun) -> None:
        """On the parent run: the mean score, one metric for each constants and order, and the fraction it belongs to;
        the baselines.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        run = self.client.get_run(parent_id)
        metrics = []
        for scored in parent.cells:
            cell = scored.cell
            scores = [one.score for *_, one in _seed_scores(scored)]
            name = f"score/{cell.constants.replace(':', '.')}/{cell.order}"
            metrics.append(Metric(name, sum(scores) / len(scores), now, round(cell.fraction * FRACTION_STEPS)))
        fractions = sorted({scored.cell.fraction for scored in parent.cells})
        metrics += [Metric("fraction", fraction, now, round(fraction * FRACTION_STEPS)) for fraction in fractions]
        worth = self.worth[parent.encoder_label, parent.task.name]
        metrics += [Metric(f"baseline/{name}", score, now, 0) for name, score in worth.baselines.items()]
        names = {metric.key for metric in metrics}
        known = {
            (name, metric.step, metric.value)
            for name in names & set(run.data.metrics)
            for metric in self.client.get_metric_history(parent_id, name)
        }
        fresh = [one for one in metrics if (one.key, one.step, one.value) not in known]
        for start in range(0, len(fresh), 1000):
            self.client.log_batch(parent_id, metrics=fresh[start : start + 1000])


def _seed_scores(scored: ScoredCell) -> Iterator[tuple[ArtifactReference, ProbeScores, ScoredSeed]]:
    """Each seed's score, after the artifact that holds it and what else that says."""
    for found in scored.scores:
        document = read_scores(found.folder)
        for one in document.scores:
            yield found, document, one
