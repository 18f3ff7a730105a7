"""``papa compare``: studies side by side from their results."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from papa.storage.artifacts import published
from papa.storage.store import Store
from papa.study.manifest import HEADS, MANIFEST, SPECIFICATION, SUMMARY, Manifest, place_results
from papa.study.manifest import RESULTS as RESULTS_FILE
from tests.flows.conftest import refusal, said
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
    to = tmp_path / "new"
    finished = said("compare", "long", "short", "--store", str(store), "--to", str(to))
    assert finished.code == 0, finished.err
    for told in ("Study", "first-encoder  | short", "second-encoder | long", "1/16", "both"):
        assert told in finished.out, finished.out
    table = pandas.read_csv(to / "compare.csv")
    assert len(table) == 2 * (2 + 5)
    for name, frame in RESULTS.items():
        means = frame.groupby(["encoder", "fraction"])["score"].mean()
        for point in table[table["study"] == name].to_dict("records"):
            assert point["mean"] == pytest.approx(means[point["encoder"], point["fraction"]])
            assert point["low"] < point["mean"] < point["high"]
    lines = table[["encoder", "study"]].drop_duplicates().itertuples(index=False, name=None)
    shared = [(model, study) for model in MODELS for study in ("long", "short")]
    assert list(lines) == shared, "what studies share stands together"
    for figure in ("compare.png", "compare.svg"):
        assert (to / figure).stat().st_size > 1000


@pytest.mark.server
def test_results_of_another_store_are_given_by_their_folder(
    store: Path, tiny: tuple[str, Path], tmp_path: Path
) -> None:
    folder = tiny[1] / "studies" / "small"
    finished = said("compare", "short", str(folder), "--store", str(store), "--to", str(tmp_path))
    assert finished.code == 0, finished.err
    assert {*pandas.read_csv(tmp_path / "compare.csv")["study"]} == {"short", str(folder)}


def test_what_cannot_be_compared_is_one_sentence(store: Path, tmp_path: Path) -> None:
    line = refusal(said("compare", "short", "lung", "--store", str(store)))
    assert line.startswith("error: there is no finished study 'lung' in ")
    assert {"short", "long"} <= set(line.rpartition("it has ")[2].split(", "))
    with published(tmp_path / "older", {}) as folder:
        RESULTS["short"].to_parquet(folder / "results.parquet")
    line = refusal(said("compare", str(tmp_path / "older"), "--store", str(store)))
    assert "names no manifest.json" in line
    taken = tmp_path / "taken"
    taken.touch()
    line = refusal(said("compare", "short", "--store", str(store), "--to", str(taken)))
    assert line == f"error: {taken} cannot be written (File exists): name another place"
