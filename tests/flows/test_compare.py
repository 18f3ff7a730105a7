"""``papa compare``: studies side by side from their results."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from papa.storage.artifacts import published
from papa.study.manifest import HEADS, MANIFEST, SPECIFICATION, SUMMARY, Manifest, place_results
from papa.study.manifest import RESULTS as RESULTS_FILE
from papa.study.store import Store
from tests.flows.conftest import refusal, said, words
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS

RESULTS = {
    "short": results(encoders=MODELS, fractions=(1.0, 0.0)),
    "long": results(encoders=MODELS).assign(score=lambda frame: frame["score"] + 0.1),
}


def publish(store: Store, name: str, frame: pandas.DataFrame) -> None:
    """What a finished study leaves for people, of its results alone."""
    key = name.encode().hex().ljust(64, "0")
    metadata = {"stage": "aggregate", "key": key, "spec": {"study": {"name": name}}}
    with published(store.folder("aggregate", key), metadata) as scratch:
        for file in (SPECIFICATION, SUMMARY, HEADS):
            (scratch / file).touch()
        manifest = Manifest(study=name, digest="", encoders={}, cells=())
        (scratch / MANIFEST).write_text(manifest.model_dump_json())
        frame.to_parquet(scratch / RESULTS_FILE, index=False)
    place_results(store, name, store.reference("aggregate", key))


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


def test_an_unknown_study_is_one_sentence_with_the_known_ones(store: Path) -> None:
    finished = said("compare", "short", "lung", "--store", str(store))
    line = refusal(finished)
    assert line.startswith("error: there is no finished study 'lung' in ")
    assert {"short", "long"} <= set(line.rpartition("it has ")[2].split(", "))


def test_a_study_is_not_compared_with_itself(store: Path, tmp_path: Path) -> None:
    named = ("short", "long", "short")
    finished = said("compare", *named, "--store", str(store), "--to", str(tmp_path / "new"))
    line = refusal(finished)
    assert line.startswith("error: papa compare: study 'short' is named twice")
    assert not (tmp_path / "new").exists()


@pytest.mark.server
def test_results_of_another_store_are_given_by_their_folder(
    store: Path, tiny: tuple[str, Path], tmp_path: Path
) -> None:
    folder = tiny[1] / "studies" / "small"
    finished = said("compare", "short", str(folder), "--store", str(store), "--to", str(tmp_path))
    assert finished.code == 0, finished.err
    table = pandas.read_csv(tmp_path / "compare.csv")
    assert {*table["study"]} == {"short", str(folder)}


def test_a_folder_that_cannot_be_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = said("compare", "short", "--store", str(store), "--to", str(tmp_path / "file"))
    assert finished.code == 1
    assert words(finished) == [
        f"error: {tmp_path / 'file'} cannot be written (File exists): give another folder with --to"
    ]


def test_results_of_an_older_version_are_one_sentence(store: Path, tmp_path: Path) -> None:
    with published(tmp_path / "older", {}) as folder:
        RESULTS["short"].to_parquet(folder / "results.parquet")
    finished = said("compare", str(tmp_path / "older"), "--store", str(store))
    assert "older are of an older version of PAPA, without manifest.json" in refusal(finished)
