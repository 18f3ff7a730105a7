"""A study that is over, ready to be logged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas

from papa.encoders.reference import EncoderReference
from papa.scores.summary import summarise
from papa.spec.cells import Cell
from papa.storage.artifacts import published
from papa.storage.store import Store
from papa.study.inputs import StudyInputs
from papa.study.stages.probe import ProbeScores, ScoredSeed
from papa.study.step import Step
from papa.study.steps import StudySteps, study_steps
from tasks.mlflow import Tracking
from tests.reporting.studies import results, study

MODELS = ("first-encoder", "second-encoder")
RESULTS = results(encoders=MODELS, fractions=(1.0, 0.5, 0.125, 0.0), seeds=(0, 1))


def steps_of(name: str, frame: pandas.DataFrame = RESULTS) -> tuple[StudyInputs, StudySteps]:
    """The study of made-up results."""
    spec = study(frame).model_copy(update={"name": name})
    encoders = {
        str(model): EncoderReference(
            str(model), None, "/folder", f"digest of {model}", "words", "bert", 6, 12, 384, 512
        )
        for model in frame["encoder"].unique()
    }
    sources = {task.source: "content" for task in spec.tasks}
    labels = {encoder: label for label, encoder in encoders.items()}
    inputs = StudyInputs(spec, tuple(encoders.values()), sources, labels)
    return inputs, study_steps(inputs)


def _of(step: Step) -> dict[str, str]:
    return {"stage": step.stage, "key": step.key}


def make(steps: StudySteps, store: Store, frame: pandas.DataFrame = RESULTS) -> None:
    """Publish what is logged of a study, with the scores of made-up results."""
    store.make()
    rows = {(Cell.of(row), row["seed"]): row for row in frame.to_dict("records")}
    for part in steps.parts:
        for cell, probes in part.cells.items():
            for step in probes:
                of_seeds = [rows[cell, seed] for seed in step["seeds"]]
                heads = tuple((0, head) for head in range(of_seeds[0]["constant_heads"]))
                scores = tuple(
                    ScoredSeed(row["seed"], row["score"], row["seconds"]) for row in of_seeds
                )
                unseen = of_seeds[0]["unseen_share"]
                document = ProbeScores(scores, None, unseen, heads, 72, 1.5 * len(scores), "cpu")
                with published(step.folder(store), _of(step)) as scratch:
                    document.save(scratch, [np.zeros((1, 1))])
        rankings = [step for by_seed in part.rankings.values() for step in by_seed.values()]
        matrices = filter(None, (kind.artifact for kind in part.constants.values()))
        for kept in (*matrices, *rankings):
            with published(kept.folder(store), _of(kept)) as scratch:
                (scratch / f"{kept.stage}.safetensors").write_text("0.1")
    with published(steps.steps[-1].folder(store), _of(steps.steps[-1])) as scratch:
        frame.to_parquet(scratch / "results.parquet", index=False)
        summarise(frame).to_csv(scratch / "summary.csv", index=False)


def log_study(name: str, store: Store, frame: pandas.DataFrame = RESULTS) -> list[str]:
    """Log made-up results as the tasks do; returns what was told."""
    inputs, steps = steps_of(name, frame)
    make(steps, store, frame)
    told: list[str] = []
    with Tracking(store, inputs.study, steps, told.append) as tracking:
        for step in steps.steps[:-1]:
            if step.stage == "probe":
                for seed in inputs.study.seeds:
                    tracking.epoch(step.name, 1, {seed: 0.5 + seed}, 1.0)
            elif step.stage in ("rank", "baseline"):
                tracking.epoch(step.name, 1, {0: 0.25}, 1.0)
            if step.stage in ("average", "rank", "probe", "baseline"):
                tracking.step(step)
        tracking.results(steps.steps[-1].reference(store))
    return told


def address_in(store: Path) -> str:
    return f"sqlite:///{store / 'mlflow.db'}"


def logged(address: str, name: str) -> pandas.DataFrame:
    """A study's active runs through MLflow's own client: id, key, parent, role, status, params,
    tags and metrics.
    """
    from mlflow import MlflowClient

    client = MlflowClient(address)
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return pandas.DataFrame(
        {
            "id": run.info.run_id,
            "key": run.data.tags.get("papa.key"),
            "parent": run.data.tags.get("mlflow.parentRunId"),
            "role": run.data.tags["papa.role"],
            "status": run.info.status,
            "params": run.data.params,
            "tags": run.data.tags,
            "metrics": run.data.metrics,
        }
        for run in runs
    )
