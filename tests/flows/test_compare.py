"""``papa compare``: studies side by side from MLflow alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from papa.study.store import Store
from tests.flows.conftest import said, words
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS, log_study, logged

RESULTS = {
    "short": results(encoders=MODELS, fractions=(1.0, 0.0)),
    "long": results(encoders=MODELS).assign(score=lambda frame: frame["score"] + 0.1),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of which only MLflow's part is left."""
    folder = tmp_path_factory.mktemp("compare")
    address = f"sqlite:///{folder / 'mlflow.db'}"
    for name, frame in RESULTS.items():
        log_study(name, Store(folder / name), address, frame)
        shutil.rmtree(folder / name / "artifacts")
    return folder


def test_the_table_holds_what_mlflow_holds(store: Path, tmp_path: Path) -> None:
    finished = said(
        "compare", "short", "long", "--store", str(store), "--to", str(tmp_path / "new")
    )
    assert finished.code == 0, finished.err
    for told in (
        "Study",
        "first-encoder  | short",
        "second-encoder | long",
        "1/16",
        "drop",
        "Beats both",
    ):
        assert told in finished.out, finished.out
    table = pandas.read_csv(tmp_path / "new" / "compare.csv")
    assert len(table) == 2 * (2 + 5)
    address = f"sqlite:///{store / 'mlflow.db'}"
    for name in RESULTS:
        runs = logged(address, name).query("parent.notna()")
        cells = pandas.DataFrame([{**run.params, **run.metrics} for run in runs.itertuples()])
        means = cells.groupby(["encoder", "fraction"])["score"].mean()
        for point in table[table["study"] == name].to_dict("records"):
            assert point["mean"] == pytest.approx(means[point["encoder"], point["fraction"]])
            assert point["seeds"] == 3
            assert point["low"] < point["mean"] < point["high"]
    assert (
        not table[table["study"] == "short"]["mean"]
        .isin(table[table["study"] == "long"]["mean"])
        .any()
    )
    for figure in ("compare.png", "compare.svg"):
        assert (tmp_path / "new" / figure).stat().st_size > 1000


def test_lines_that_studies_share_stand_together(store: Path, tmp_path: Path) -> None:
    said("compare", "long", "short", "--store", str(store), "--to", str(tmp_path))
    lines = (
        pandas.read_csv(tmp_path / "compare.csv")[["encoder", "study"]]
        .drop_duplicates()
        .to_records(index=False)
    )
    assert [tuple(line) for line in lines] == [
        (model, study) for model in MODELS for study in ("long", "short")
    ]


def test_a_study_changed_is_read_as_it_was_logged_last(store: Path, tmp_path: Path) -> None:
    changed = RESULTS["short"].assign(score=lambda frame: frame["score"] - 0.2)
    log_study(
        "changed", Store(tmp_path / "first"), f"sqlite:///{store / 'mlflow.db'}", RESULTS["short"]
    )
    log_study("changed", Store(tmp_path / "second"), f"sqlite:///{store / 'mlflow.db'}", changed)
    said("compare", "changed", "--store", str(store), "--to", str(tmp_path))
    table = pandas.read_csv(tmp_path / "compare.csv")
    first = table[(table["encoder"] == MODELS[0]) & (table["fraction"] == 1)]["mean"].item()
    expected = changed[(changed["encoder"] == MODELS[0]) & (changed["fraction"] == 1)][
        "score"
    ].mean()
    assert first == pytest.approx(expected)


def _nothing(file: Path) -> None:
    file.unlink()


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: pandas.read_parquet(file).assign(score=0.99).to_parquet(file),
        lambda file: pandas.read_parquet(file).iloc[1:].to_parquet(file),
        lambda file: file.write_bytes(bytes(file.stat().st_size)),
        lambda file: file.write_text("model,score\nfirst-encoder,0.99\n"),
        _nothing,
        _folder,
    ],
    ids=["other scores", "a row missing", "zeros", "text", "nothing", "a folder"],
)
def test_mlflows_files_are_believed_only_as_they_were_logged(
    tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    log_study("short", Store(tmp_path), address, RESULTS["short"])
    files = list(tmp_path.glob("mlartifacts/*/artifacts/results/results.parquet"))
    assert len(files) == len(MODELS), "of each parent run"
    for file in files:
        damage(file)
    finished = said("compare", "short", "--store", str(tmp_path), "--to", str(tmp_path / "new"))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: ")
    assert "short" in line
    assert "0.99" not in finished.out + line
    assert not (tmp_path / "new").exists()


def test_an_unknown_study_is_one_sentence_with_the_known_ones(store: Path) -> None:
    finished = said("compare", "short", "lung", "--store", str(store))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: MLflow at sqlite:///")
    assert "knows no study 'lung': it has " in line
    assert {"short", "long"} <= set(line.rpartition("it has ")[2].split(", "))


def test_a_study_is_not_compared_with_itself(store: Path, tmp_path: Path) -> None:
    named = ("short", "long", "short")
    finished = said("compare", *named, "--store", str(store), "--to", str(tmp_path / "new"))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: papa compare: study 'short' is named twice")
    assert not (tmp_path / "new").exists()


def test_a_store_without_studies(tmp_path: Path) -> None:
    finished = said("compare", "any", "--store", str(tmp_path / "empty"))
    assert finished.code == 1
    assert words(finished) == [
        f"error: there is no MLflow database {tmp_path / 'empty' / 'mlflow.db'}: run a study "
        "first, or set MLFLOW_TRACKING_URI"
    ]
    assert not (tmp_path / "empty").exists()


def test_a_folder_that_cannot_be_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = said("compare", "short", "--store", str(store), "--to", str(tmp_path / "file"))
    assert finished.code == 1
    assert words(finished) == [
        f"error: {tmp_path / 'file'} cannot be written (File exists): give another folder with --to"
    ]
