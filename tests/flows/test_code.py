"""A user's own code in a study: only from files given, and never from what a store names."""

from pathlib import Path
from typing import Any

import pytest

from papa.errors import PapaError
from papa.flows.check import check_study
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.tasks.code import read_code
from tests.flows.conftest import FEW, SMALL, artifacts, invoke, known, papa, refusal, write_study

CODE = """
from sklearn.linear_model import LogisticRegression

def last(layer, head):
    return -layer

def share(true, predicted):
    return float((true == predicted).mean())

probe = LogisticRegression(max_iter=1000)
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
        {**REVIEWS, "name": "linear", "base": "reviews", "custom_probe": "my_code:probe"},
    ],
    "orders": ["last_to_first", "my_code:last", "reversed:my_code:last"],
    "substitutes": ["average"],
    "keep": [1, 0.5],
    "probe_seeds": [0, 1, 2, 3, 4],
}
"""Enough rows, epochs and seeds to tell that the encoder beats its baselines."""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("code") / "my_code.py"
    file.write_text(CODE)
    return file


@pytest.fixture(scope="module")
def store(shallow: str, code: Path, prefect: dict[str, str]) -> Path:
    """Where workers finished the study: Ray's processes cannot import its code."""
    study = write_study(code.parent, {**STUDY, "encoders": [shallow]})
    store_option = ("--store", str(code.parent / "store"))
    code_option = ("--code", str(code))
    assert "add --code my_code.py to papa run" in refusal(
        papa("run", study, *store_option, extra_environment=prefect)
    )
    assert not artifacts(code.parent / "store", "tokenise")
    known(study, *code_option)
    run = papa("run", study, *code_option, *store_option, extra_environment=prefect)
    assert run.code == 0, run.err
    return code.parent / "store"


@pytest.mark.server
def test_what_reads_a_stored_study_runs_nothing_of_it(
    store: Path, shallow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a module of its name that lies where Python looks; the control is given by name."""
    fired = tmp_path / "fired"
    evil = tmp_path / "my_code.py"
    evil.write_text(f"open({str(fired)!r}, 'w').close()\n" + CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    saved = str(store / "studies" / "small.yaml")
    store_option = ("--store", str(store))
    allowed = ("--allow-source", shallow)
    for arguments, shown in (
        (("list",), "small"),
        (("compare", "small"), "my_code:share"),
        (("heads", "small"), "my_code:last"),
        (("plan", saved, *allowed), "my_code:last"),
        (("check", saved, *allowed), "my_code:share"),
        (("report", "small"), "report"),
    ):
        finished = invoke(*arguments, *store_option)
        assert finished.code == 0, finished.err
        assert shown in finished.out
    report = (store / "studies" / "small" / "report.html").read_text()
    for name in ("my_code:last", "my_code:share", "my_code:probe"):
        assert name in report
    chosen = ("--order", "my_code:last", "--keep", "0.5", "--task", "linear")
    exported = invoke("export", "small", "--to", str(tmp_path / "exported"), *chosen, *store_option)
    assert exported.code == 0, exported.err
    assert "my_code:last" in (tmp_path / "exported" / "README.md").read_text()
    assert not fired.exists()
    assert invoke("plan", saved, *allowed, *store_option, "--code", str(evil)).code == 0
    assert fired.exists()


@pytest.mark.server
def test_a_stored_study_needs_its_code_to_go_on(store: Path) -> None:
    """Which a scheduled run cannot give."""
    study = load_study(store / "studies" / "small.yaml", ["keep=[1, 0.5, 0]"])
    with pytest.raises(PapaError, match=r"my_code:share.* --code my_code.py"):
        check_study(study, Store(store))
    without_orders = study.model_copy(update={"tasks": study.tasks[:1]})
    assert check_study(without_orders, Store(store)).missing, "its orders are known"


REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("my_code:lost", {}, "'last'"),
    ("my_code:one", {}, "my_code:one"),
    ("lambda", {"metric": "my_code:count"}, "callable"),
    ("lambda", {"custom_probe": "my_code:one"}, "estimator"),
    ("lambda", {"custom_probe": "my_code:probe", "head": "native"}, "custom_probe"),
    ("lambda", {}, r"--code my_code\.py"),
    ("my_code:last", {"metric": "other:f"}, r"--code other\.py"),
]


@pytest.mark.parametrize(("order", "task", "expected"), REFUSED)
def test_code_that_cannot_be_used_is_named(
    code: Path, tmp_path: Path, order: str, task: dict[str, str], expected: str
) -> None:
    tasks = [{**REVIEWS, "name": "linear", "base": "reviews", **task}]
    path = write_study(tmp_path, {**SMALL, "tasks": tasks, "orders": [order]})
    with pytest.raises(PapaError, match=expected):
        check_study(load_study(Path(path)), Store(tmp_path / "store"), code=[code])


def test_code_is_read_as_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "my_code.py"
    file.write_bytes("# Müller".encode("latin-1"))
    with pytest.raises(PapaError, match=r"my_code\.py.*UTF-8"):
        read_code([file])


def test_a_deployment_takes_no_code_that_a_study_has_the_digest_of(tmp_path: Path) -> None:
    tasks = [{**REVIEWS, "name": "linear", "base": "reviews", "metric": "my_code:share"}]
    code = [{"name": "my_code", "sha256": "0" * 64}]
    study = write_study(tmp_path, {**SMALL, "tasks": tasks, "code": code})
    assert "my_code" in refusal(invoke("deploy", study))
