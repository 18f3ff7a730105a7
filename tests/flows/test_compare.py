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
from papa.reporting.summary import compared
from papa.storage.artifacts import published
from papa.study.store import MARKER, Store
from tests.flows.conftest import refusal, said
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS

RESULTS = {
    "short": results(encoders=MODELS, fractions=(1.0, 0.0)),
    "long": results(encoders=MODELS).assign(score=lambda frame: frame["score"] + 0.1),
}


def publish(store: Store, name: str, frame: pandas.DataFrame) -> None:
    """What a finished study leaves for people, of its results alone."""
    with published(store.study(name), {}) as scratch:
        frame.to_parquet(scratch / "results.parquet", index=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(tmp_path_factory.mktemp("compare"))
    store.make()
    for name, frame in RESULTS.items():
        publish(store, name, frame)
    return store.root


def test_the_table_holds_what_the_studies_found(store: Path) -> None:
    finished = said("compare", "short", "long", "--store", str(store))
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
    means = compared({name: stored_results(Store(store), name) for name in RESULTS})
    for mean in means["mean"]:
        assert f"{mean:.3f}" in finished.out


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
    finished = said("compare", "short", "--store", str(tmp_path))
    line = refusal(finished)
    assert "short" in line
    assert "0.99" not in finished.out + line


def test_an_unknown_study_is_one_sentence_with_the_known_ones(store: Path) -> None:
    finished = said("compare", "short", "lung", "--store", str(store))
    line = refusal(finished)
    assert line.startswith("error: there is no study at lung, and none of that name in ")
    assert {"short", "long"} <= set(line.rpartition("it has ")[2].split(", "))


def test_a_study_is_not_compared_with_itself(store: Path) -> None:
    line = refusal(said("compare", "short", "long", "short", "--store", str(store)))
    assert line.startswith("error: papa compare: study 'short' is named twice")


@pytest.mark.server
def test_results_of_other_stores(store: Path, tiny: tuple[str, Path], tmp_path: Path) -> None:
    """By their folder; or by the study's file, where a store holds artifacts alone, as a URI does
    on another machine.
    """
    (study, first), other = tiny, tmp_path / "other"
    folder = first / "studies" / "small"
    shutil.copytree(first / "artifacts", other / "artifacts")
    shutil.copy(first / MARKER, other)
    finished = said("compare", study, str(folder), "--store", str(other))
    assert finished.code == 0, finished.err
    scores = [stored_results(Store(other), named)["score"] for named in (study, str(folder))]
    assert scores[0].tolist() == scores[1].tolist()
    elsewhere = said("compare", study, "--store", str(store))
    assert "has not been run in this store" in refusal(elsewhere)


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
