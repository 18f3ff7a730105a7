"""What is read of a finished study when its training files and its encoder are gone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import papa
from papa.storage.artifacts import METADATA, metadata_below, verified
from papa.storage.files import Files
from papa.storage.store import Store
from papa.tasks.head_scores import read_head_scores
from papa.tasks.manifest import FinishedStudy, open_study
from tests.finished import finish_study
from tests.flows.conftest import (
    Finished,
    everything,
    invoke,
    refusal,
    rows_in,
    task_on,
    write_study,
)

WORDS = ("good", "bad", "fine", "poor", "great", "awful", "nice", "dull")
pytestmark = pytest.mark.server
ROWS = [
    {"text": f"a {WORDS[(row + row // 8) % 8]} film of {row} days", "label": (row + row // 8) % 2}
    for row in range(48)
]
STUDY: dict[str, Any] = {
    "name": "alone",
    "orders": ["first_to_last", "lambda"],
    "keep": [1, 0.5, 0],
    "probe_seeds": [0, 1],
    "ranking": {"epochs": 1},
    "ranking_seeds": [0, 1],
    "execution": {"shard_rows": 16, "workers": 1},
}


@pytest.fixture(scope="module")
def store(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose study's training files, encoder, paper and file are gone."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(shallow, folder / "encoder")
    task = task_on("films", rows_in(folder, "films", ROWS), labels=["no", "yes"])
    document = {**STUDY, "encoders": [str(folder / "encoder")], "tasks": [task]}
    reference = "encoder,task,constants,order,fraction,score,source\n"
    (folder / "paper.csv").write_text(f"{reference}encoder,films,average,lambda,1,0.987,made up\n")
    file = write_study(folder, {**document, "reference": "paper.csv"})
    finish_study(file, folder / "store")
    for path in folder.iterdir():
        if path.name != "store":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder / "store"


@pytest.fixture(scope="module")
def finished_study(store: Path) -> FinishedStudy:
    return open_study(Store(store), "alone")


def reading(store: Path, command: str, *options: str) -> Finished:
    finished = invoke(command, "alone", "--store", str(store), *options)
    assert finished.code == 0, finished.err
    return finished


def test_the_manifest_says_where_each_number_comes_from(finished_study: FinishedStudy) -> None:
    manifest = finished_study.manifest
    (encoder,) = manifest.encoders.values()
    assert not Path(encoder.folder).exists()
    assert len(manifest.cells) == 2 * 3 == len(finished_study.summary)
    for cell in manifest.cells:
        for probe in cell.probes:
            stored_scores = json.loads(
                (verified(finished_study.artifact(probe.artifact)) / "scores.json").read_text()
            )
            assert [tuple(head) for head in stored_scores["constant_heads"]] == list(
                probe.constant_heads
            )
            assert {score["seed"] for score in stored_scores["scores"]} == set(probe.seeds)
            assert (probe.constants is None) == (cell.fraction == 1)
        if (*cell.line[3:], cell.fraction) == ("first_to_last", 0.5):
            assert cell.constant_heads == tuple((0, head) for head in range(12))
    stored = {
        f"{path.parent.name}/{path.name}"
        for path in finished_study.store.root.glob("artifacts/*/*")
    }
    assert {entry.artifact for entry in manifest.averages} < stored


def test_scores_of_heads_are_those_of_the_rankings_to_the_last_digit(
    store: Path, finished_study: FinishedStudy, tmp_path: Path
) -> None:
    trainings = sorted(
        metadata_below(f"{finished_study.store.artifacts}/train_lambda").values(),
        key=lambda training: training["spec"]["seed"],
    )
    rankings = {
        training["spec"]["seed"]: finished_study.artifact(f"train_lambda/{training['key']}")
        for training in trainings
    }
    trained = read_head_scores("lambda", rankings)
    heads = finished_study.heads
    assert list(heads[["layer", "head"]].itertuples(index=False, name=None)) == [*np.ndindex(2, 12)]
    bounds = dict(zip(("low", "high"), trained.interval, strict=True))
    for name, values in {"score": trained.mean, **bounds}.items():
        assert np.array_equal(heads[name], values.ravel())
    (tmp_path / "lambda.tsv").write_text(reading(store, "heads", "--tsv").out)
    scores = papa.load_scores(tmp_path / "lambda.tsv")
    assert np.array_equal(scores["score"], heads["score"])


def test_heads_says_what_the_summary_and_the_manifest_hold(
    store: Path, finished_study: FinishedStudy
) -> None:
    document = json.loads(reading(store, "heads", "--json").out)
    assert {answer["order"] for answer in document["answers"]} == {"first_to_last", "lambda"}
    rows = finished_study.summary.set_index(["order", "fraction"])
    for answer in document["answers"]:
        assert answer["heads_in_all"] == 24
        for count in answer["counts"]:
            row = rows.loc[(answer["order"], count["fraction"])]
            drop = row["relative_drop"]
            assert count["drop"] == (None if np.isnan(drop) else drop)
            assert len(count["heads"]) == count["constant_heads"] == row["constant_heads"]
        mentions_seeds = "Over 2 seeds the head order by λ" in answer["certainty"]
        assert mentions_seeds == (answer["order"] == "lambda")
    assert document["scores"] == finished_study.heads.to_dict("records")
    text = reading(store, "heads", "--max-drop", "0.99").out
    assert "films · average · λ ascending, within a drop of 99 % on these validation rows:" in text


def test_a_report_is_built_again_as_it_was(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "store")
    results = tmp_path / "store" / "studies" / "alone"
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    assert b"0.987" in before["report.html"], "the paper's numbers are stored too"
    assert b'"levels"' in before["report.html"], "and every matrix"
    assert "report.html" in reading(tmp_path / "store", "report").out
    after = {path.name: path.read_bytes() for path in results.iterdir()}
    assert after.keys() == before.keys()
    for name in before.keys() - {"metadata.json"}:
        # Vega counts the gradients of a process.
        assert after[name] == before[name] or name.endswith((".pdf", "matrices.svg")), name
    open_study(Store(tmp_path / "store"), "alone")
    (artifact,) = (tmp_path / "store" / "artifacts" / "aggregate").iterdir()
    assert (artifact / "metadata.json").read_bytes() == after["metadata.json"]


class Killed(BaseException):
    pass


def test_a_report_that_is_killed_as_it_is_published_loses_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_store = Store(shutil.copytree(store, tmp_path / "store"))
    before = everything(copied_store.root / "artifacts")
    with monkeypatch.context() as patch:
        for name in {"write", "replace"} & vars(Files).keys():
            patch.setattr(Files, name, killed_at_metadata(getattr(Files, name)))
        with pytest.raises(Killed):
            invoke("report", "alone", "--store", copied_store.address)
    invoke("prune", "--delete", "--store", copied_store.address)
    left = everything(copied_store.root / "artifacts")
    assert left.items() >= before.items()


def killed_at_metadata(write: Callable[..., bool]) -> Callable[..., bool]:
    def killed(files: Files, name: str, content: bytes) -> bool:
        if name == METADATA:
            raise Killed
        return write(files, name, content)

    return killed


def test_studies_are_compared_and_listed(
    store: Path, finished_study: FinishedStudy, tmp_path: Path
) -> None:
    """A study by its name, and results of another store by their folder."""
    copied = tmp_path / "copied"
    to = tmp_path / "new"
    shutil.copytree(store, copied)
    folder = str(copied / "studies" / "alone")
    shown = reading(store, "compare", folder, "--to", str(to)).out
    assert "| λ ascending         | alone " in shown
    table = pandas.read_csv(to / "compare.csv")
    for _, of_study in table.groupby("study"):
        for name in ("mean", "low", "high"):
            assert of_study[name].tolist() == finished_study.summary[name].tolist()
    assert {*table["study"]} == {"alone", folder}
    for figure in ("compare.png", "compare.svg"):
        assert (to / figure).stat().st_size > 1000
    for path in copied.rglob("*"):
        os.utime(path, (0, 0))
    titles, row = (
        line.split("\t") for line in invoke("list", "--store", str(store)).out.splitlines()
    )
    assert titles == ["Study", "Date", "Encoders", "Tasks", "State", "Size", "Report"]
    state = ["encoder", "films", "finished", row[5], f"{store}/studies/alone/report.html"]
    assert row[2:] == state
    assert f"alone\t{row[1]}\t" in invoke("list", "--store", str(copied)).out, "not the copy's date"


def names_of_keys(finished: Finished) -> set[str]:
    return {key for key in ("probe_seeds", "tasks.0.slots", "execution") if key in finished.err}


def test_a_file_that_was_edited_since_is_named_with_its_keys(
    tiny: tuple[str, Path], tmp_path: Path, hurried: None
) -> None:
    file, store = tiny
    study = json.loads(Path(file).read_text())
    (task,) = study["tasks"]
    edited = write_study(tmp_path, study | {"tasks": [task | {"slots": 24}], "probe_seeds": [3, 4]})
    store_option = ("--store", str(store))
    to = ("--keep", "0.5", "--to", str(tmp_path / "to"))
    for command, options in (("heads", ()), ("compare", ()), ("describe", ()), ("export", to)):
        finished = invoke(command, edited, *options, *store_option)
        assert finished.code == 0, finished.err
        assert names_of_keys(finished) == {"probe_seeds", "tasks.0.slots"}
    assert invoke("heads", edited, *store_option).out == invoke("heads", file, *store_option).out


def test_a_file_as_it_was_run_and_a_name_say_nothing(
    tiny: tuple[str, Path], tmp_path: Path
) -> None:
    file, store = tiny
    study = json.loads(Path(file).read_text())
    faster = write_study(tmp_path, study | {"execution": {"workers": 2}})
    for name in (file, faster, "small"):
        assert invoke("heads", name, "--store", str(store)).err == ""


def test_results_are_believed_only_as_they_were_written(
    finished_study: FinishedStudy, tmp_path: Path
) -> None:
    for name in ("manifest.json", "summary.csv", "heads.parquet", "results.parquet"):
        for damage in (Path.unlink, lambda path: path.write_bytes(b"0.99")):
            shutil.copytree(finished_study.folder, copied := tmp_path / "copied")
            damage(copied / name)
            for command in ("heads", "compare"):
                assert name in refusal(
                    invoke(command, str(copied), "--store", finished_study.store.address)
                )
            shutil.rmtree(copied)
