"""``papa compare``: studies side by side from their results."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from flows.studies import stored_results
from papa.errors import SpecError
from papa.storage.artifacts import published
from papa.study.store import MARKER, Store
from tests.flows.conftest import refusal, said, words
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS

RESULTS = {
    "short": results(encoders=MODELS, fractions=(1.0, 0.0)),
    "long": results(encoders=MODELS).assign(score=lambda frame: frame["score"] + 0.1),
}


def publish(store: Store, name: str, frame: pandas.DataFrame) -> None:
    """What a finished study leaves for people, of its results alone."""
    with published(store.study(name), {"spec": {"study": {"name": name}}}) as scratch:
        frame.to_parquet(scratch / "results.parquet", index=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(tmp_path_factory.mktemp("compare"))
    store.make()
    for name, frame in RESULTS.items():
        publish(store, name, frame)
    return store.root


def test_the_table_holds_what_the_studies_found(store: Path, tmp_path: Path) -> None:
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
    for name, frame in RESULTS.items():
        means = frame.groupby(["encoder", "fraction"])["score"].mean()
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
def test_results_are_believed_only_as_they_were_written(
    tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    store = Store(tmp_path)
    store.make()
    publish(store, "short", RESULTS["short"])
    damage(store.study("short") / "results.parquet")
    finished = said("compare", "short", "--store", str(tmp_path), "--to", str(tmp_path / "new"))
    line = refusal(finished)
    assert "short" in line
    assert "0.99" not in finished.out + line
    assert not (tmp_path / "new").exists()


def test_an_unknown_study_is_one_sentence_with_the_known_ones(store: Path) -> None:
    finished = said("compare", "short", "lung", "--store", str(store))
    line = refusal(finished)
    assert line.startswith("error: there is no study at lung, and none of that name in ")
    assert {"short", "long"} <= set(line.rpartition("it has ")[2].split(", "))


def test_a_study_is_not_compared_with_itself(store: Path, tmp_path: Path) -> None:
    named = ("short", "long", "short")
    finished = said("compare", *named, "--store", str(store), "--to", str(tmp_path / "new"))
    line = refusal(finished)
    assert line.startswith("error: papa compare: study 'short' is named twice")
    assert not (tmp_path / "new").exists()


@pytest.mark.server
def test_results_of_other_stores(store: Path, tiny: tuple[str, Path], tmp_path: Path) -> None:
    """By their folder; or by the study's file, where a store holds artifacts alone, as a URI does
    on another machine.
    """
    (study, first), other = tiny, tmp_path / "other"
    folder = first / "studies" / "small"
    shutil.copytree(first / "artifacts", other / "artifacts")
    shutil.copy(first / MARKER, other)
    finished = said("compare", study, str(folder), "--store", str(other), "--to", str(tmp_path))
    assert finished.code == 0, finished.err
    table = pandas.read_csv(tmp_path / "compare.csv")
    means = {name: own["mean"].tolist() for name, own in table.groupby("study")}
    assert means.keys() == {study, str(folder)}
    assert means[study] == means[str(folder)]
    elsewhere = said("compare", study, "--store", str(store))
    assert "as it is here has not been run in this store" in refusal(elsewhere)


def test_a_folder_that_cannot_be_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = said("compare", "short", "--store", str(store), "--to", str(tmp_path / "file"))
    assert finished.code == 1
    assert words(finished) == [
        f"error: {tmp_path / 'file'} cannot be written (File exists): give another folder with --to"
    ]


def test_results_of_an_older_version_are_one_sentence(tmp_path: Path) -> None:
    frame = results(fractions=(1.0, 0.0))
    older = frame.drop(columns=[name for name in frame if name.endswith("influence")])
    for name, table in (("now", frame), ("older", older)):
        with published(tmp_path / name, {}) as folder:
            table.to_parquet(folder / "results.parquet")
    store = Store(tmp_path / "store")
    assert len(stored_results(store, str(tmp_path / "now"))) == len(frame)
    with pytest.raises(SpecError, match="older are of an older version of PAPA"):
        stored_results(store, str(tmp_path / "older"))
