"""A finished study in MLflow: its cells, its curves, what its scores are worth, and its files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from papa.progress import Progress
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, read_metadata, sha256_of_json, verify
from papa.study.probe import ProbeScores, ScoredSeed, read_scores
from papa.study.results import ScoredCell, Worth, in_threads, relative_drop, worth_of
from papa.study.store import Store
from tasks.mlflow_client import database_of
from tasks.mlflow_parents import ScoredParent, SeedRun
from tasks.mlflow_runs import (
    CELL,
    DROP,
    PARENT,
    PROGRESS,
    ROLE,
    StudyRuns,
    progress_metric,
    step_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

RESULTS = "results"
"""Where a parent run keeps its study's results."""
RESULTS_SHA256 = "papa.results_sha256"
"""The tag with the digest of a parent run's ``results.parquet``: the file is believed if it has it."""
LOGGED = "papa.logged"
"""The tag with the time, in ms, at which a parent run got its study's results."""
BEATS_BASELINE = "papa.beats_baseline"
"""The tag that says whether drops tell anything: ``yes``, ``no``, or why nobody can tell."""
_AT_ONCE = 8
"""Cells logged to a server at a time; a SQLite file has one writer."""


def log_files(client: MlflowClient, run: str, parent: ScoredParent, results: ArtifactReference) -> None:
    """Attach to a parent run what it used and the study's results; the results replace older ones.

    Args:
        client: of the MLflow to log to.
        run: its id.
        parent: what it stands for.
        results: the study's results.

    Raises:
        ArtifactError: a file of theirs is damaged.
    """
    have = {file.path for kind in ("constants", "lambda") for file in client.list_artifacts(run, kind)}
    for place, one in parent.artifacts:
        if place in have:
            continue
        folder = one.folder
        verify(folder)
        for name in sorted(read_metadata(folder)["files"]):
            if name.endswith(".safetensors"):
                client.log_artifact(run, str(folder / name), place)
    verify(results.folder)
    client.log_artifacts(run, str(results.folder), RESULTS)


class RunLogger:
    """Logs a finished study; what is logged already stays, and live runs of its cells are their runs.

    Args:
        client: of the MLflow to log to.
        store: where files go if no server keeps them.
        study: the resolved specification.
        results: the study's results.
    """

    def __init__(self, client: MlflowClient, store: Store, study: StudySpec, results: ArtifactReference) -> None:
        self.client, self.study, self.results = client, study, results
        self.worth = worth_of(results)
        self.runs = StudyRuns(client, store, study)

    def log(self, parents: Sequence[ScoredParent], progress: Progress) -> dict[str, Any]:
        """Log what is not logged yet; returns the experiment and the parents' run ids."""
        ids: dict[str, str] = {}
        done, total = 0, sum(len(parent.cells) for parent in parents)
        threads = 1 if database_of(self.client.tracking_uri) else _AT_ONCE
        progress(0, total)
        for parent in parents:
            run = self.runs.parent(parent)
            run_id = ids[parent.name] = run.info.run_id
            worth = self.worth[parent.encoder_label, parent.task.name]
            log_files(self.client, run_id, parent, self.results)
            created: dict[str, Run] = {}
            original = next((scored for scored in parent.cells if scored.cell.fraction == 1), None)
            originals = {one.seed: one.score for *_, one in _seed_scores(original)} if original else {}
            log = partial(self._log_cell, run_id, parent, originals, worth)
            for new in in_threads(log, parent.cells, threads):
                created |= new
                done += 1
                progress(done, total)
            created |= self._log_curves(run_id, parent, worth.verdict)
            if created:
                self.runs.agree(created, f"tags.`{PARENT}` = '{run_id}'")
            self._log_summary(run, parent, worth)
            self.client.set_terminated(run_id)
        return {"experiment": self.study.name, "experiment_id": self.runs.experiment, "parents": ids}

    def _log_cell(
        self,
        parent_id: str,
        parent: ScoredParent,
        originals: Mapping[int, float],
        worth: Worth,
        scored: ScoredCell,
    ) -> dict[str, Run]:
        """One child run for each seed; returns those that were not there yet, by key.

        Args:
            parent_id: the run of ``parent``.
            parent: the cell's encoder on its task.
            originals: the score of each seed with every head input-dependent; empty where the study lacks them.
            worth: whether drops tell anything, and which there are.
            scored: the cell.
        """
        created, cell, verdict = {}, scored.cell, worth.verdict
        if worth.drops[cell.constants, cell.order, cell.fraction] is None:
            originals = {}
        for part in _seed_scores(scored):
            one = SeedRun(parent, self.study, cell, part[-1].seed)
            run = self.runs.runs.get(one.key)
            if run is None:
                run = created[one.key] = self.runs.cell(one, parent_id)
            drop = relative_drop(originals, part[-1])
            self.runs.score(one, run, part, {BEATS_BASELINE: verdict}, drop=drop)
        return created

    def _log_curves(self, parent_id: str, parent: ScoredParent, verdict: str) -> dict[str, Run]:
        """One child run for each kind of constants and head order: mean score and drop over the fraction, under names
        that all curves share; returns those that were not there yet, by key.
        """
        from mlflow.entities import Metric

        created: dict[str, Run] = {}
        params, now = parent.parameters(self.study), int(time.time() * 1000)
        scores = _mean_scores(parent)
        for constants, order in dict.fromkeys((constants, order) for constants, order, _ in scores):
            own = {"constants": constants, "order": order}
            key = sha256_of_json({"group": sha256_of_json(params), "curve": own})
            run = self.runs.runs.get(key)
            if run is None:
                tags = {PARENT: parent_id, CELL: key, ROLE: "curve", **parent.tags, **own}
                run = created[key] = self.runs.create(f"{constants} · {order}", tags)
            metrics = []
            for (*line, fraction), score in scores.items():
                if line == [constants, order]:
                    lost = self.worth[parent.encoder_label, parent.task.name].drops[constants, order, fraction]
                    drop = {} if lost is None else {DROP: lost}
                    known = {"fraction": fraction, "score": score, parent.task.metric: score, **drop}
                    step = step_of(fraction)
                    metrics += [Metric(name, value, now, step) for name, value in known.items()]
            self.runs.log(run, {**params, **own}, tags={BEATS_BASELINE: verdict})
            self.runs.log_new(run.info.run_id, metrics)
            if run.info.status != "FINISHED":
                self.client.set_terminated(run.info.run_id)
        return created

    def _log_summary(self, run: Run, parent: ScoredParent, worth: Worth) -> None:
        """On the parent run: the scores at its ends and the baselines, under names that say what they are; a table."""
        from mlflow.entities import Metric

        metric, scores, now = parent.task.metric, _mean_scores(parent), int(time.time() * 1000)
        known: dict[str, float] = {f"baseline/{name}": score for name, score in worth.baselines.items()}
        for (constants, _, fraction), score in scores.items():
            if fraction == 1:
                known[f"{metric}/original"] = score
            elif fraction == 0:
                known[f"{metric}/all_heads_constant/{_in_name(constants)}"] = score
        self.runs.log_new(run.info.run_id, [Metric(name, score, now, 0) for name, score in known.items()])
        if self.client.get_run(run.info.run_id).data.metrics.get(PROGRESS) != 1:
            self.runs.log(run, {}, [progress_metric(run, 1.0)])
        description = f"{parent.description()}\n\n{_score_table(scores)}\n\nIn full: file `{RESULTS}/report.html`."
        tags = {BEATS_BASELINE: worth.verdict, "mlflow.note.content": description, LOGGED: str(now)}
        tags[RESULTS_SHA256] = read_metadata(self.results.folder)["files"]["results.parquet"]
        self.runs.log(run, {}, tags=tags)


def _seed_scores(scored: ScoredCell) -> Iterator[tuple[ArtifactReference, ProbeScores, ScoredSeed]]:
    """Each seed's score, after the artifact that holds it and what else that says."""
    for found in scored.scores:
        document = read_scores(found.folder)
        for one in document.scores:
            yield found, document, one


def _mean_scores(parent: ScoredParent) -> dict[tuple[str, str, float], float]:
    """The mean score over seeds by constants, order and fraction."""
    means: dict[tuple[str, str, float], float] = {}
    for scored in parent.cells:
        scores = [one.score for *_, one in _seed_scores(scored)]
        means[scored.cell.constants, scored.cell.order, scored.cell.fraction] = sum(scores) / len(scores)
    return means


def _score_table(scores: Mapping[tuple[str, str, float], float]) -> str:
    """A Markdown table: a row for each kind of constants and order, a column for each fraction."""
    fractions = sorted({fraction for *_, fraction in scores}, reverse=True)
    lines = dict.fromkeys((constants, order) for constants, order, _ in scores)
    head = ["constants", "order", *(f"{fraction:g}" for fraction in fractions)]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        rows.append([*line, *(f"{scores[*line, one]:.3f}" if (*line, one) in scores else "" for one in fractions)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"Mean score by the input-dependent fraction of heads:\n\n{table}"


def _in_name(label: str) -> str:
    """A label of constants in a metric's name, which knows no colon."""
    return label.replace(":", ".")
