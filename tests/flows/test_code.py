"""Code of the user's own in a study: only from files that the command line gives, in keys by what
they hold, and never from what a store names.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.check import check_study
from papa.errors import PapaError
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.study.manifest import open_study
from tests.finished import finish_study
from tests.flows.conftest import (
    FEW,
    SMALL,
    artifacts,
    known,
    papa,
    said,
    write_study,
)

CODE = """
import torch

def last(layer, head):
    return -layer

def share(true, predicted):
    return float((true == predicted).mean())

probe = torch.nn.Linear
count = 3

def one(value):
    return value
"""
REVIEWS: dict[str, Any] = {
    **FEW,
    "slots": 32,
    "train_rows": 100,
    "validation_rows": 100,
    "probe": {"learning_rate": 1e-3, "batch_size": 16, "epochs": 2},
}
STUDY: dict[str, Any] = {
    **SMALL,
    "tasks": [
        REVIEWS,
        {**REVIEWS, "name": "share", "base": "reviews", "metric": "my_code:share"},
        {**REVIEWS, "name": "linear", "base": "reviews", "own_probe": "my_code:probe"},
    ],
    "orders": ["last_to_first", "my_code:last", "reversed:my_code:last"],
    "constants": ["average"],
    "fractions": [1, 0.5],
    "seeds": [0, 1, 2, 3, 4],
}
"""Enough rows, epochs and seeds to tell that the encoder beats its baselines."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def code(folder: Path) -> Path:
    file = folder / "my_code.py"
    file.write_text(CODE)
    return file


@pytest.fixture(scope="module")
def study(folder: Path, shallow: str) -> str:
    return write_study(folder, {**STUDY, "encoders": [shallow]})


@pytest.fixture(scope="module")
def store(folder: Path, study: str, code: Path, prefect: dict[str, str]) -> Path:
    """Where workers finished the study: Ray's processes cannot import its code."""
    place = ("--store", str(folder / "store"))
    refused = said("run", study, *place)
    assert "add --code my_code.py to papa run" in refused.err
    assert not artifacts(folder / "store", "tokenise")
    given = ("--code", str(code))
    run = papa("run", known(study, *given), *given, *place, more=prefect)
    assert run.code == 0, run.err
    return folder / "store"


def scores(store: Path, task: str, order: str = "last_to_first") -> list[float]:
    found = open_study(Store(store), "small").results
    return found.query("task == @task and order == @order and fraction == 0.5")["score"].tolist()


@pytest.mark.server
def test_a_study_computes_what_its_code_says(store: Path) -> None:
    named = scores(store, "reviews")
    assert scores(store, "share") == named, "the same probe by a metric that is accuracy"
    assert scores(store, "linear") != named, "another probe"
    for task in ("reviews", "share", "linear"):
        assert scores(store, task, "my_code:last") == scores(store, task), "the same heads"
        assert scores(store, task, "reversed:my_code:last") != scores(store, task), "others"
    metrics = open_study(Store(store), "small").results.groupby("task")["metric"].unique()
    assert metrics["share"].tolist() == ["my_code:share"]
    study = yaml.safe_load((store / "studies" / "small.yaml").read_text())
    assert [one["name"] for one in study["code"]] == ["my_code"]
    assert [one["name"] for one in study["scores"]] == ["my_code:last"]


@pytest.mark.server
def test_steps_run_again_where_the_code_that_they_use_is_another(
    store: Path, study: str, code: Path, tmp_path: Path
) -> None:
    """λ, averages and the named task stay as they are; so does an order that comes out the same."""
    other = tmp_path / "my_code.py"
    other.write_text(CODE.replace("mean())", "mean()) / 2").replace("-layer", "-2 * layer"))
    shutil.copytree(store, tmp_path / "new")
    again = finish_study(study, tmp_path / "new", code=[code])
    assert not again.ran, "the same file"
    changed = finish_study(study, tmp_path / "new", code=[other]).ran
    assert {name.partition(" · ")[0] for name in changed} == {"probe", "baseline", "aggregate"}
    assert not any("MiniLM-L6-v2 · reviews" in name for name in changed)
    before, after = scores(store, "share"), scores(tmp_path / "new", "share")
    assert after == [score / 2 for score in before]


@pytest.mark.server
def test_what_reads_a_stored_study_runs_nothing_of_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurried: None
) -> None:
    """A module of that name that writes a file lies where Python would import it; the control is
    given on the command line.
    """
    fired, evil = tmp_path / "fired", tmp_path / "my_code.py"
    evil.write_text(f"open({str(fired)!r}, 'w').close()\n" + CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    saved, place = str(store / "studies" / "small.yaml"), ("--store", str(store))
    for arguments, shown in (
        (("list",), "small"),
        (("compare", "small"), "my_code:share"),
        (("heads", "small"), "my_code:last"),
        (("plan", saved), "my_code:last"),
        (("check", saved), "my_code:share"),
        (("report", "small"), "report"),
    ):
        finished = said(*arguments, *place)
        assert finished.code == 0, finished.err
        assert shown in finished.out
    report = (store / "studies" / "small" / "report.html").read_text()
    for name in ("my_code:last", "my_code:share", "my_code:probe"):
        assert name in report
    chosen = ("--order", "my_code:last", "--fraction", "0.5", "--task", "linear")
    exported = said("export", "small", "--to", str(tmp_path / "exported"), *chosen, *place)
    assert exported.code == 0, exported.err
    assert "my_code:last" in (tmp_path / "exported" / "README.md").read_text()
    assert not fired.exists()
    assert said("plan", saved, *place, "--code", str(evil)).code == 0
    assert fired.exists()


@pytest.mark.server
def test_a_stored_study_needs_its_code_to_go_on(store: Path, tmp_path: Path) -> None:
    """Which a scheduled run cannot give."""
    study = load_study(store / "studies" / "small.yaml", ["fractions=[1, 0.5, 0]"])
    with pytest.raises(PapaError, match=r"names my_code:share, .*: add --code my_code.py to papa"):
        check_study(study, Store(store))
    named = study.model_copy(update={"tasks": study.tasks[:1]})
    assert check_study(named, Store(store)).to_run, "its orders are known"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"orders": ["my_code:lost"]}, r"my_code.py defines no lost \(did you mean 'last'\?\)"),
        ({"orders": ["my_code:one"]}, "my_code:one: it failed .*takes 1 positional argument"),
        ({"orders": ["my_code:share"]}, "my_code:share: it failed .*has no attribute 'mean'"),
        ({"metric": "my_code:count"}, "3 is not a callable object"),
        ({"own_probe": "my_code:one"}, r"my_code:one cannot be called with \(inputs, classes\)"),
        ({"own_probe": "my_code:probe", "head": "own"}, "leave it out of a task of head: own"),
        ({}, "--code my_code.py: the study names nothing of it"),
        ({"metric": "other:f"}, "names other:f, code of your own, .* add --code other.py to papa"),
    ],
)
def test_code_that_cannot_be_used_is_one_sentence(
    changed: dict[str, Any], sentence: str, code: Path, tmp_path: Path
) -> None:
    top = {key: value for key, value in changed.items() if key in ("orders", "constants")}
    task = {key: value for key, value in changed.items() if key not in top}
    study = {**SMALL, "tasks": [{**REVIEWS, "name": "linear", "base": "reviews", **task}], **top}
    if "other:f" in task.values():
        study["orders"] = ["my_code:last"]
    with pytest.raises(PapaError, match=sentence):
        check_study(
            load_study(Path(write_study(tmp_path, study))), Store(tmp_path / "store"), code=[code]
        )
