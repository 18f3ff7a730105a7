"""A finished study, for tests of what reads it: made in this process, without Prefect and Ray."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas

from papa.progress import Progress, ignore_progress
from papa.spec.file import load_study, resolve_study
from papa.spec.orders import Cell
from papa.storage.artifacts import ArtifactReference
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.manifest import FinishedStudy, open_study
from papa.tasks.pipeline import Pipeline, build_pipeline
from papa.tasks.results import results_table
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, group_by_seed
from papa.tasks.study_files import place_results, save_study
from papa.worker import Worker

SOURCE = {"kind": "files", "train": "train.jsonl", "validation": "validation.jsonl"}


@dataclass
class Told:
    """A reporter that keeps what ran and what was damaged; nothing waits or is tried again."""

    ran: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, name: str) -> Iterator[Progress]:
        self.ran.append(name)
        yield ignore_progress

    def note(self, name: str, sentence: str) -> None:
        assert sentence.startswith("computed again: ")
        self.damages.append(name)


def finish_study(file: str, store: Path, *overrides: str) -> Told:
    """What ``papa run`` leaves of a study, without Prefect and MLflow; which steps it ran."""
    spec = load_study(Path(file), overrides)
    opened_store = Store(store)
    reporter = Told()
    opened_store.make()
    inputs = resolve_inputs(spec).inputs()
    resolved = {"code": inputs.study.code, "scores": inputs.study.scores}
    save_study(opened_store, spec.model_copy(update=resolved))
    steps = build_pipeline(inputs).steps
    run_here(steps, opened_store, spec.execution, reporter)
    place_results(opened_store, spec.name, steps[-1].reference(opened_store))
    return reporter


def described(
    encoder: object, *tasks: Mapping[str, object], **settings: object
) -> dict[str, object]:
    """A small study of an encoder; its rows are ``SOURCE`` unless its ``tasks`` say otherwise."""
    design = {"orders": ["first_to_last"], "keep": [1, 0.5, 0], "probe_seeds": [0]}
    documents = [{"name": task["metric"], "source": SOURCE, "slots": 16, **task} for task in tasks]
    ranking = {"ranking_seeds": [0]}
    named = {"name": "s", "encoders": [str(encoder)], "tasks": documents}
    return {**named, **design, **ranking, **settings}


def cells_of(pipeline: Pipeline) -> dict[Cell, tuple[Step, ...]]:
    return {cell: probes for pair in pipeline.pairs for cell, probes in pair.cells.items()}


class Scored(NamedTuple):
    """A study whose cells have scores: its pipeline, where it ran, rows, and what steps made."""

    pipeline: Pipeline
    store: Store
    table: pandas.DataFrame
    artifacts: dict[Step, ArtifactReference]


def score_study(
    document: dict[str, object], folder: Path, to: Path, worker: Worker | None = None
) -> Scored:
    """Run a study in ``to`` whose files lie in ``folder``, but for its report, on a worker."""
    study = resolve_study(document, folder=folder, origin="test")
    store = Store(to)
    store.make()
    pipeline = build_pipeline(resolve_inputs(study).inputs())
    *scoring, _ = pipeline.steps
    session = Session(store, worker or Worker(study.execution.device), study.execution, Told())
    for group in group_by_seed(scoring):
        run_once(group, session)
    artifacts = {step: step.reference(store) for step in scoring}
    return Scored(pipeline, store, results_table(pipeline.pairs, artifacts), artifacts)


def opened(scored: Scored) -> FinishedStudy:
    aggregate: Any = scored.pipeline.steps[-1]
    study = aggregate["study"]
    run_here([aggregate], scored.store, study.execution, Told())
    place_results(scored.store, study.name, aggregate.reference(scored.store))
    return open_study(scored.store, study.name)
