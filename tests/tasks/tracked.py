"""A study that is over, ready to be logged, also by processes of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas

from papa.encoders.reference import EncoderReference
from papa.progress import ignore_progress
from papa.scores.summary import LINE, summarise
from papa.spec.cells import Cell
from papa.storage.artifacts import published
from papa.study.costs import size_of
from papa.study.inputs import StudyInputs
from papa.study.probe import ProbeScores, ScoredSeed
from papa.study.store import Store
from tasks.mlflow import connect, tracking_errors
from tasks.runs import StudyRuns
from tasks.track import Track, log_finished, tracked_steps
from tests.flows.processes import PATIENCE_SECONDS
from tests.reporting.studies import results, study

MODELS = ("first-encoder", "second-encoder")
RESULTS = results(encoders=MODELS, fractions=(1.0, 0.5, 0.125, 0.0), seeds=(0,))
FORKED = get_context("forkserver")
FORKED.set_forkserver_preload([__name__, "mlflow.store.tracking.sqlalchemy_store", "pytest"])
"""Where processes begin that have imported what they need."""


class Doomed:
    """MLflow's client; the process is killed at its call number ``last`` that writes to a run."""

    def __init__(self, client: Any, last: int) -> None:
        self.client, self.left = client, last

    def __getattr__(self, name: str) -> Any:
        if name in ("create_run", "log_batch", "set_terminated"):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self.client, name)


def tracked(name: str, address: str, frame: pandas.DataFrame = RESULTS) -> Track:
    """The step that logs the study of made-up results."""
    spec = study(frame).model_copy(update={"name": name})
    encoders = {
        str(model): EncoderReference(
            str(model), None, "/folder", f"digest of {model}", "words", "bert", 6, 12, 384, 512
        )
        for model in frame["encoder"].unique()
    }
    sizes, sources = (
        {task: size_of(task) for task in spec.tasks},
        {task.source: "content" for task in spec.tasks},
    )
    labels = {encoder: label for label, encoder in encoders.items()}
    inputs = StudyInputs(spec, tuple(encoders.values()), sources, sizes, labels)
    track = tracked_steps(inputs, address).steps[-1]
    assert isinstance(track, Track)
    return track


def log_study(
    name: str,
    store: Store,
    address: str,
    frame: pandas.DataFrame = RESULTS,
    last: int | None = None,
) -> dict[str, Any]:
    """Log made-up results as the stage ``track`` does; what it returns.

    Args:
        frame: the results.
        last: the process is killed at this write.
    """
    track = tracked(name, address, frame)
    make(track, store, frame)
    with tracking_errors(address):
        client: Any = connect(address)
        doomed = client if last is None else Doomed(client, last)
        runs = StudyRuns(doomed, store, name, track.shown)
        return log_finished(track, runs, track.found(store), ignore_progress)


def make(track: Track, store: Store, frame: pandas.DataFrame = RESULTS) -> None:
    """Publish what ``track`` reads, with the scores of made-up results."""
    store.make()
    rows = {(Cell.of(row), row["seed"]): row for row in frame.to_dict("records")}
    for part in track.parents:
        for cell, probes in part.cells.items():
            for step in probes:
                of_seeds = [rows[cell, seed] for seed in step.seeds]
                heads = tuple((0, head) for head in range(of_seeds[0]["constant_heads"]))
                scores = tuple(
                    ScoredSeed(row["seed"], row["score"], row["seconds"]) for row in of_seeds
                )
                document = ProbeScores(
                    scores, None, of_seeds[0]["unseen_share"], heads, 72, 1.5 * len(scores), "cpu"
                )
                with published(step.folder(store), {}) as scratch:
                    document.save(scratch)
        rankings = [step for by_seed in part.rankings.values() for step in by_seed.values()]
        for kept in (*part.constants.values(), *rankings):
            with published(kept.folder(store), {}) as scratch:
                (scratch / f"{kept.stage}.safetensors").write_text("0.1")
    with published(track.results.folder(store), {}) as scratch:
        frame.to_parquet(scratch / "results.parquet", index=False)
        summarise(frame).to_csv(scratch / "summary.csv", index=False)


def log_at_once(*studies: tuple[str, Path, str]) -> None:
    """Log studies, each given by its name, its store and MLflow's address, in as many processes."""
    with ProcessPoolExecutor(len(studies), FORKED, _have, (dict(os.environ),)) as processes:
        logging = [processes.submit(log_study, name, Store(to), at) for name, to, at in studies]
        for one in logging:
            one.result(PATIENCE_SECONDS)


def killed(call: Callable[..., object], *arguments: object) -> None:
    """Call something in a process that is killed while it works."""
    process = FORKED.Process(target=_call, args=(dict(os.environ), call, *arguments))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL


def _call(environment: dict[str, str], call: Callable[..., object], *arguments: object) -> None:
    _have(environment)
    call(*arguments)


def _have(environment: dict[str, str]) -> None:
    """Have the environment of the test; that of the process which forks is the first test's."""
    os.environ.clear()
    os.environ.update(environment)


def logged(address: str, name: str) -> pandas.DataFrame:
    """A study's active runs through MLflow's own client: id, key, parent, status, params, tags and
    metrics.
    """
    from mlflow import MlflowClient

    client = MlflowClient(address)
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return pandas.DataFrame(
        {
            "id": run.info.run_id,
            "key": run.data.tags.get("papa.cell"),
            "parent": run.data.tags.get("mlflow.parentRunId"),
            "role": run.data.tags["papa.role"],
            "status": run.info.status,
            "params": run.data.params,
            "tags": run.data.tags,
            "metrics": run.data.metrics,
        }
        for run in runs
    )


def address_in(store: Path) -> str:
    return f"sqlite:///{store / 'mlflow.db'}"


def assert_whole(runs: pandas.DataFrame, frame: pandas.DataFrame = RESULTS) -> None:
    """Every run of the study once, finished, with its parameters and metrics."""
    parents, cells, curves = (runs[runs["role"] == role] for role in ("parent", "cell", "curve"))
    assert len(parents) == frame["encoder"].nunique()
    assert len(cells) == len(frame)
    assert len(curves) == len(frame.groupby(LINE))
    assert len(runs) == len(parents) + len(cells) + len(curves)
    assert runs["key"].is_unique
    assert set(runs["status"]) == {"FINISHED"}
    assert parents["parent"].isna().all()
    assert set(cells["parent"]) == set(curves["parent"]) == set(parents["id"])
    for run in cells.to_dict("records"):
        assert {"encoder", "task", "fraction", "seed"} <= set(run["params"])
        assert {"score", "fraction", "share_of_heads", "relative_drop"} <= set(run["metrics"])
        assert run["metrics"]["fraction"] == float(run["params"]["fraction"])
    for run in parents.to_dict("records"):
        assert run["params"]["encoder"] in MODELS
        metric = run["params"]["metric"]
        ends = {f"{metric}/original", f"{metric}/all_heads_constant/average"}
        assert {*ends, "baseline/word_embeddings", "progress"} <= set(run["metrics"])
        assert "| average   | lambda |" in run["tags"]["mlflow.note.content"]
    for run in curves.to_dict("records"):
        assert {"score", "fraction", "relative_drop"} <= set(run["metrics"])
