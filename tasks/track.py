"""What MLflow shows of a study, and the stage ``track``, which logs one that is over.

One parent run for each encoder and task; below it one run for each cell and seed, and one for each
kind of constants and head order with the score over the input-dependent fraction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from papa.progress import Progress
from papa.scores.intervals import relative_drop
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference, published, read_metadata, reading, verify
from papa.study import costs
from papa.study.inputs import StudyInputs
from papa.study.own import Own
from papa.study.probe import Probe, ProbeScores, read_scores
from papa.study.results import StudyPart, probes_of
from papa.study.step import Session, Step, in_threads
from papa.study.steps import StudySteps, study_steps
from papa.study.store import Store
from tasks.mlflow import connect, database_of, tracking_errors, without_password
from tasks.runs import DESCRIPTION, PARENT, Entry, Point, Runs, now, twice
from tasks.shown import CURVE, RESULTS, ROLE, ShownPart, first_to_open, in_name, run_links

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from pandas import DataFrame

RUNS = "runs.json"
RESULTS_SHA256 = "papa.results_sha256"
"""The tag with the digest of the ``results.parquet`` that a run shows."""
_DROP = "relative_drop"
_PROGRESS = "progress"
_AT_ONCE = 8
"""Scores logged to a server at a time; a SQLite file has one writer."""
_CURVES_SHOWN = 100
"""On one page: more lines are not told apart."""
_NOTE = (
    "A run is one encoder on one task. Its child runs are cells (tag `papa.role = cell`) and, for "
    "each kind of constant matrices and head order, a curve (`papa.role = curve`): `score` over "
    "`fraction`, the share of heads that stay input-dependent. Charts of curves: search for "
    "``tags.`papa.role` = 'curve'`` and set the x-axis (gear) to the metric `fraction`."
)


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
            logged = StudyRuns(connect(self.address), session.store, self).log(found, progress)
            document = {"address": without_password(self.address), **logged}
            (scratch / RUNS).write_text(json.dumps(document, indent=1) + "\n")


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


class StudyRuns:
    """The runs of a study, written by these methods while it runs and once it is over."""

    def __init__(self, client: MlflowClient, store: Store, track: Track) -> None:
        self.client, self.track = client, track
        self.runs = Runs(client, track.study.name, store, _NOTE)
        for parent in track.shown:
            self.runs.get(parent.entry)
        self.runs.agree()
        for parent in track.shown:
            run = self.runs.get(parent.entry)
            self.runs.write(
                parent.entry, {}, tags={DESCRIPTION: parent.description, **run.data.tags}, end=False
            )
            twice(partial(client.log_inputs, run.info.run_id, parent.data_sets()))

    def child(self, shown: ShownPart, entry: Entry, **tags: str) -> Run:
        """The run of a cell and seed or of a curve, made with these tags if it is not there."""
        return self.runs.get(entry, **{PARENT: self.runs.get(shown.entry).info.run_id, **tags})

    def score(
        self,
        entry: Entry,
        found: ArtifactReference,
        document: ProbeScores,
        *,
        drop: float | None = None,
        points: Sequence[Point] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log the score of a cell and seed, from ``document`` of the artifact ``found``."""
        fraction: float = entry.params["fraction"]
        (score,) = (score for score in document.scores if score.seed == entry.params["seed"])
        values = {
            "fraction": fraction,
            "share_of_heads": 1 - len(document.constant_heads) / document.heads,
            "score": score.score,
            "seconds": score.seconds,
            "cell_seconds": document.seconds,
            "unseen_share": document.unseen_share,
            _DROP: drop,
        }
        self.runs.write(
            entry,
            values,
            _step(fraction),
            points=points,
            tags={"papa.scores": found.digest, **(tags or {})},
        )

    def log(self, found: Mapping[Step, ArtifactReference], progress: Progress) -> dict[str, Any]:
        """Log the finished study from the artifacts of its steps; returns what ``runs.json`` says
        of its runs.
        """
        from papa.reporting.summary import read_summary
        from papa.reporting.tables import verdict

        results, shown, done = found[self.track.results].folder, self.track.shown, 0
        verify(results)
        digest = read_metadata(results)["files"]["results.parquet"]
        summary = read_summary(results / "summary.csv")
        for parent in shown:
            self._log_files(parent, found)
            rows = summary[
                (summary["encoder"] == parent.part.encoder_label)
                & (summary["task"] == parent.part.task.name)
            ]
            worth = {"papa.beats_baseline": verdict(rows.iloc[0])}
            for _ in self._log_scores(parent, found, rows, worth):
                progress(done := done + 1, sum(len(parent.scored) for parent in shown))
            self._log_curves(parent, rows, {**worth, RESULTS_SHA256: digest})
            self._log_summary(parent, rows, {**worth, RESULTS_SHA256: digest})
        self.runs.agree()
        document = {
            "experiment": self.track.study.name,
            "experiment_id": self.runs.experiment,
            "parents": {
                parent.entry.name: self.runs.get(parent.entry).info.run_id for parent in shown
            },
            "curves": curves_of(self.client, self.runs.experiment),
        }
        note = f"{first_to_open(document)}\n\n{_NOTE}"
        self.client.set_experiment_tag(self.runs.experiment, DESCRIPTION, note)
        return document

    def _log_files(self, shown: ShownPart, found: Mapping[Step, ArtifactReference]) -> None:
        """Attach to a parent run what it used and the study's results, which replace older ones."""
        run = self.runs.get(shown.entry).info.run_id
        have = {
            file.path
            for kind in ("constants", "lambda")
            for file in self.client.list_artifacts(run, kind)
        }
        for folder, step in shown.files.items():
            if folder not in have:
                verify(found[step].folder)
                for file in found[step].folder.glob("*.safetensors"):
                    self.client.log_artifact(run, str(file), folder)
        self.client.log_artifacts(run, str(found[self.track.results].folder), RESULTS)

    def _log_scores(
        self,
        shown: ShownPart,
        found: Mapping[Step, ArtifactReference],
        rows: DataFrame,
        tags: Mapping[str, str],
    ) -> Iterator[None]:
        """Log the score of every cell and seed, with its drop where the ``rows`` tell one."""
        steps = list(dict.fromkeys(step for _, step, _ in shown.scored))
        read = in_threads(lambda step: read_scores(found[step]), steps, _AT_ONCE)
        documents = dict(zip(steps, read, strict=True))
        score = {
            (step, scored.seed): scored.score for step in steps for scored in documents[step].scores
        }
        originals = {
            seed: score[step, seed] for cell, step, seed in shown.scored if cell.fraction == 1
        }
        mean = sum(originals.values()) / max(1, len(originals))
        told = {
            (row.constants, row.order, row.fraction)
            for row in rows[rows[_DROP].notna()].itertuples()
        }

        def log(scored: tuple[Cell, Probe | Own, int]) -> None:
            (cell, step, seed), drop = scored, None
            if (cell.constants, cell.order, cell.fraction) in told:
                # Each seed beside its own original, and all by their mean: the study's is the mean.
                drop = relative_drop(mean, mean - (originals[seed] - score[step, seed]))
            entry = shown.cell(cell, seed)
            self.child(shown, entry)
            self.score(entry, found[step], documents[step], drop=drop, tags=tags)

        yield from in_threads(log, shown.scored, 1 if database_of(self.track.address) else _AT_ONCE)

    def _log_curves(self, shown: ShownPart, rows: DataFrame, tags: Mapping[str, str]) -> None:
        """Log mean scores and drops over the fraction, under names that all curves share."""
        names = {
            "fraction": "fraction",
            "score": "mean",
            shown.part.task.metric: "mean",
            _DROP: _DROP,
        }
        for (constants, order), line in rows.groupby(["constants", "order"], sort=False):
            entry = shown.curve(constants, order)
            run = self.child(shown, entry)
            at = now() if run.data.metrics else run.info.start_time
            logged = run.data.tags.get(RESULTS_SHA256)
            points = [
                (name, row[column], at, _step(row["fraction"]))
                for row in line.to_dict("records")
                for name, column in names.items()
                if logged != tags[RESULTS_SHA256] and not math.isnan(row[column])
            ]
            self.runs.write(entry, {}, points=points, tags=tags)

    def _log_summary(self, shown: ShownPart, rows: DataFrame, tags: Mapping[str, str]) -> None:
        """On the parent run: the scores at its ends, the baselines, and a table."""
        from papa.reporting.wording import markdown_table

        run, metric = self.runs.get(shown.entry), shown.part.task.metric
        values = {
            f"baseline/{name}": rows[name].iloc[0]
            for name in ("always_one_answer", "word_embeddings")
        }
        for row in rows[rows["fraction"].isin([0, 1])].itertuples():
            end = (
                "original" if row.fraction == 1 else f"all_heads_constant/{in_name(row.constants)}"
            )
            values[f"{metric}/{end}"] = row.mean
        lines = rows.groupby(["constants", "order"], sort=False)["mean"]
        table = markdown_table(
            ["Constants", "Order", *(f"{value:g}" for value in rows["fraction"].unique())],
            [[*line, *(f"{value:.3f}" for value in means)] for line, means in lines],
        )
        heading = "Mean score by the input-dependent fraction of heads"
        note = (
            f"{shown.description}\n\n{heading}:\n\n{table}\n\nIn full: file "
            f"`{RESULTS}/report.html`."
        )
        points = [] if run.data.metrics.get(_PROGRESS) == 1 else [progress_of(run, 1.0)]
        self.runs.write(shown.entry, values, points=points, tags={**tags, DESCRIPTION: note})


def tracked_steps(inputs: StudyInputs, address: str) -> StudySteps:
    """The steps of a study with, last, the one that logs it to the MLflow at ``address``."""
    found, study = study_steps(inputs), inputs.study
    flops = costs.TRACKING * len(found.cells) * len(study.seeds)
    track = Track(f"track · {study.name}", flops, study, found.steps[-1], found.parts, address)
    return replace(found, steps=(*found.steps, track))


def curves_of(client: MlflowClient, experiment: str) -> list[str]:
    """The runs of a study's curves, newest first; no more than a chart can show."""
    found = client.search_runs(
        [experiment], f"tags.`{ROLE}` = '{CURVE}'", max_results=_CURVES_SHOWN
    )
    return [run.info.run_id for run in found]


def progress_of(run: Run, share: float) -> Point:
    """How much of the study is done, over the seconds since the run was created."""
    return _PROGRESS, share, now(), max(0, (now() - run.info.start_time) // 1000)


def _step(fraction: float) -> int:
    """A fraction as a metric's step, so that charts draw scores over fractions."""
    return round(fraction * 10_000)
