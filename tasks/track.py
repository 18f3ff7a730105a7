"""The stage ``track``, which logs a study that is over to MLflow.

One parent run for each encoder and task; below it one run for each cell and seed, and one for each
kind of constants and head order with the score over the input-dependent fraction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from papa.progress import Progress
from papa.scores.intervals import relative_drop
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, published, read_metadata, reading, verify
from papa.study import costs
from papa.study.inputs import StudyInputs
from papa.study.results import StudyPart, probes_of
from papa.study.step import Session, Step, in_threads
from papa.study.steps import StudySteps, study_steps
from papa.study.store import Store
from tasks.mlflow import connect, database_of, tracking_errors, without_password
from tasks.runs import DROP, NOTE, StudyRuns, step_of
from tasks.shown import (
    CURVE,
    DESCRIPTION,
    POINT,
    RESULTS,
    ROLE,
    ShownPart,
    first_to_open,
    in_name,
    run_links,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from pandas import DataFrame

RUNS, _TABLE = "runs.json", "results.parquet"
RESULTS_SHA256 = "papa.results_sha256"
"""The tag with the digest of the ``results.parquet`` that a run shows."""
_AT_ONCE = 8
"""Scores logged to a server at a time; a SQLite file has one writer."""
_CURVES_SHOWN = 100
"""On one page: more lines are not told apart."""


@dataclass(frozen=True, eq=False)
class Track(Step):
    """Log a study to MLflow: its encoders on its tasks, whose cells are all of the study's."""

    stage: ClassVar[str] = "track"
    version: ClassVar[int] = 4

    study: StudySpec
    results: Step
    parents: tuple[StudyPart, ...]
    address: str

    @cached_property
    def shown(self) -> tuple[ShownPart, ...]:
        """The parents as MLflow shows them."""
        return tuple(ShownPart(self.study, part) for part in self.parents)

    def spec(self) -> dict[str, Any]:
        return {
            "study": self.study.model_dump(mode="json", exclude={"execution"}),
            "address": without_password(self.address),
            "parents": [
                {
                    "parameters": parent.entry.params,
                    "cells": parent.part.in_key(),
                    "files": list(parent.files),
                }
                for parent in self.shown
            ],
        }

    def inputs(self) -> dict[str, Step]:
        kept = {
            f"{parent.entry.name} {folder}": step
            for parent in self.shown
            for folder, step in parent.files.items()
        }
        return {"results": self.results, **probes_of(self.parents), **kept}

    def forget_lost(self, store: Store) -> None:
        """Have the study logged again where the SQLite file that held its runs is gone."""
        database = database_of(self.address)
        if database is not None and not database.is_file():
            store.discard(self.stage, self.key)

    def run(self, session: Session, progress: Progress) -> None:
        found = self.found(session.store)
        with (
            published(self.folder(session.store), self.metadata(found)) as scratch,
            tracking_errors(self.address),
        ):
            runs = StudyRuns(connect(self.address), session.store, self.study.name, self.shown)
            document = log_finished(self, runs, found, progress)
            (scratch / RUNS).write_text(json.dumps(document, indent=1) + "\n")


def tracked_steps(inputs: StudyInputs, address: str) -> StudySteps:
    """The steps of a study with, last, the one that logs it to the MLflow at ``address``."""
    found, study = study_steps(inputs), inputs.study
    flops = costs.TRACKING * len(found.cells) * len(study.seeds)
    track = Track(f"track · {study.name}", flops, study, found.steps[-1], found.parts, address)
    return replace(found, steps=(*found.steps, track))


def logged_runs(track: Track, store: Store) -> dict[str, Any]:
    """The runs of a finished study, as ``runs.json`` of its artifact holds them; where they are the
    step knows, whatever the file says.
    """
    found = track.reference(store)
    verify(found.folder, RUNS)
    with reading(found.path):
        document = json.loads((found.folder / RUNS).read_text())
        document["address"] = without_password(track.address)
        run_links(document)
        return dict(document)


def curves_of(client: MlflowClient, experiment: str) -> list[str]:
    """The runs of a study's curves, newest first; no more than a chart can show."""
    found = client.search_runs(
        [experiment], f"tags.`{ROLE}` = '{CURVE}'", max_results=_CURVES_SHOWN
    )
    return [run.info.run_id for run in found]


def log_finished(
    track: Track, runs: StudyRuns, found: Mapping[Step, ArtifactReference], progress: Progress
) -> dict[str, Any]:
    """Log a study from the artifacts of its steps; returns what ``runs.json`` says of its runs."""
    import pandas

    from papa.reporting.tables import verdict
    from papa.scores.summary import read_table

    folder, done = found[track.results].folder, 0
    verify(folder)
    digest = read_metadata(folder)["files"][_TABLE]
    results = pandas.read_parquet(folder / _TABLE, columns=["encoder", "task", *POINT, "score"])
    summary = read_table(folder / "summary.csv")
    at_once = 1 if database_of(track.address) else _AT_ONCE
    for shown in track.shown:
        scores, rows = shown.rows_of(results), shown.rows_of(summary)
        worth, drops = {"papa.beats_baseline": verdict(rows.iloc[0])}, _drops(scores, rows)
        _log_files(runs, shown, found, track.results)
        each = [(entries, found[step], drops, worth) for step, entries in shown.cells.items()]
        for _ in in_threads(lambda scored: runs.score(*scored), each, at_once):
            progress(done := done + 1, sum(len(parent.cells) for parent in track.shown))
        _log_curves(runs, shown, rows, {**worth, RESULTS_SHA256: digest})
        _log_summary(runs, shown, rows, {**worth, RESULTS_SHA256: digest})
    runs.agree()
    document = {
        "address": without_password(track.address),
        "experiment": track.study.name,
        "experiment_id": runs.experiment,
        "parents": {
            parent.entry.name: runs.get(parent.entry).info.run_id for parent in track.shown
        },
        "curves": curves_of(runs.client, runs.experiment),
    }
    note = f"{first_to_open(document)}\n\n{NOTE}"
    runs.client.set_experiment_tag(runs.experiment, DESCRIPTION, note)
    return document


def _log_files(
    runs: StudyRuns, shown: ShownPart, found: Mapping[Step, ArtifactReference], results: Step
) -> None:
    """Attach to a parent run what it used and the study's results, which replace older ones."""
    client, run_id = runs.client, runs.get(shown.entry).info.run_id
    for folder, step in shown.files.items():
        if not client.list_artifacts(run_id, folder):
            verify(found[step].folder)
            for file in found[step].folder.glob("*.safetensors"):
                client.log_artifact(run_id, str(file), folder)
    client.log_artifacts(run_id, str(found[results].folder), RESULTS)


def _drops(scores: DataFrame, rows: DataFrame) -> dict[tuple[Any, ...], float]:
    """The relative drops of cells and seeds, where ``rows`` of the summary tell one."""
    score = scores.set_index(POINT)["score"].to_dict()
    originals = {seed: own for (*_, fraction, seed), own in score.items() if fraction == 1}
    mean = sum(originals.values()) / max(1, len(originals))
    told = {*rows[rows[DROP].notna()].set_index(POINT[:-1]).index}
    return {
        # Each seed beside its own original, and all by their mean: the study's is the mean.
        (*cell, seed): relative_drop(mean, mean - (originals[seed] - own))
        for (*cell, seed), own in score.items()
        if tuple(cell) in told
    }


def _log_curves(
    runs: StudyRuns, shown: ShownPart, rows: DataFrame, tags: Mapping[str, str]
) -> None:
    """Log mean scores and drops over the fraction, under names that all curves share."""
    names = {"fraction": "fraction", "score": "mean", shown.part.task.metric: "mean", DROP: DROP}
    for (constants, order), line in rows.groupby(["constants", "order"], sort=False):
        entry = shown.curve(constants, order)
        run = runs.get(entry)
        at = None if run.data.metrics else run.info.start_time
        logged = run.data.tags.get(RESULTS_SHA256) == tags[RESULTS_SHA256]
        for name, column in names.items() if not logged else ():
            for fraction, value in zip(line["fraction"], line[column], strict=True):
                if not math.isnan(value):
                    runs.add(entry, name, value, step_of(fraction), at)
        runs.write(entry, tags=tags)


def _log_summary(
    runs: StudyRuns, shown: ShownPart, rows: DataFrame, tags: Mapping[str, str]
) -> None:
    """On the parent run: the scores at its ends, the baselines, and a table."""
    from papa.reporting.wording import markdown_table

    metric = shown.part.task.metric
    values = {
        f"baseline/{name}": rows[name].iloc[0] for name in ("always_one_answer", "word_embeddings")
    }
    for row in rows[rows["fraction"].isin([0, 1])].itertuples():
        constant = f"all_heads_constant/{in_name(row.constants)}"
        values[f"{metric}/{'original' if row.fraction == 1 else constant}"] = row.mean
    lines = rows.groupby(["constants", "order"], sort=False)["mean"]
    table = markdown_table(
        ["Constants", "Order", *(f"{value:g}" for value in rows["fraction"].unique())],
        [[*line, *(f"{value:.3f}" for value in means)] for line, means in lines],
    )
    note = (
        f"{shown.entry.tags[DESCRIPTION]}\n\nMean score by the input-dependent fraction of heads:"
        f"\n\n{table}\n\nIn full: file `{RESULTS}/report.html`."
    )
    runs.add_progress(shown.entry, 1.0)
    runs.write(shown.entry, values, tags={**tags, DESCRIPTION: note})
