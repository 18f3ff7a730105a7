"""What is read of a finished study when its training files and its encoder are gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import papa
from flows.cli.heads import parse_share
from papa.errors import SpecError
from papa.storage.store import Store
from papa.study.manifest import FinishedStudy, open_study
from papa.study.stages.rank import read_head_scores
from tests.finished import finish_study
from tests.flows.conftest import Finished, refusal, rows_in, said, task_on, write_study

WORDS = ("good", "bad", "fine", "poor", "great", "awful", "nice", "dull")
pytestmark = pytest.mark.server
ROWS = [
    {"text": f"a {WORDS[(row + row // 8) % 8]} film of {row} days", "label": (row + row // 8) % 2}
    for row in range(48)
]
STUDY: dict[str, Any] = {
    "name": "alone",
    "orders": ["first_to_last", "lambda"],
    "fractions": [1, 0.5, 0],
    "seeds": [0, 1],
    "ranking": {"epochs": 1, "seeds": [0, 1]},
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
def found(store: Path) -> FinishedStudy:
    return open_study(Store(store), "alone")


def reading(store: Path, command: str, *options: str) -> Finished:
    finished = said(command, "alone", "--store", str(store), *options)
    assert finished.code == 0, finished.err
    return finished


def test_the_manifest_says_where_each_number_comes_from(found: FinishedStudy) -> None:
    manifest = found.manifest
    (encoder,) = manifest.encoders.values()
    assert (encoder.layers, encoder.heads, encoder.model_type) == (2, 12, "bert")
    assert not Path(encoder.folder).exists()
    assert len(manifest.cells) == 2 * 3 == len(found.summary)
    for cell in manifest.cells:
        for probe in cell.probes:
            made = json.loads((found.artifact(probe.artifact).folder / "scores.json").read_text())
            assert [tuple(head) for head in made["constant_heads"]] == list(probe.constant_heads)
            assert {one["seed"] for one in made["scores"]} == set(probe.seeds)
            assert (probe.constants is None) == (cell.fraction == 1)
    by_name = next(
        cell for cell in manifest.cells if (*cell.line[3:], cell.fraction) == ("first_to_last", 0.5)
    )
    assert by_name.constant_heads == tuple((0, head) for head in range(12))
    stored = {f"{path.parent.name}/{path.name}" for path in found.store.root.glob("artifacts/*/*")}
    assert {entry.artifact for entry in manifest.averages} < stored


def test_scores_of_heads_are_those_of_the_rankings(found: FinishedStudy) -> None:
    made = sorted(found.store.metadata("rank"), key=lambda one: one["spec"]["seed"])
    rankings = {one["spec"]["seed"]: found.artifact(f"rank/{one['key']}") for one in made}
    trained = read_head_scores("lambda", rankings)
    heads = found.heads
    assert list(heads[["layer", "head"]].itertuples(index=False, name=None)) == [*np.ndindex(2, 12)]
    assert np.array_equal(heads["score"], trained.mean.ravel())
    for name, end in zip(("low", "high"), trained.interval, strict=True):
        assert np.array_equal(heads[name], end.ravel())


def test_heads_says_what_the_summary_and_the_manifest_hold(
    store: Path, found: FinishedStudy
) -> None:
    document = json.loads(reading(store, "heads", "--json").out)
    assert {answer["order"] for answer in document["answers"]} == {"first_to_last", "lambda"}
    for answer in document["answers"]:
        of_line = found.summary[found.summary["order"] == answer["order"]].set_index("fraction")
        assert answer["heads_in_all"] == 24
        for count in answer["counts"]:
            row = of_line.loc[count["fraction"]]
            drop = row["relative_drop"]
            assert count["drop"] == (None if np.isnan(drop) else drop)
            assert len(count["heads"]) == count["constant_heads"] == row["constant_heads"]
        told = "Over 2 seeds the head order by λ" in answer["certainty"]
        assert told == (answer["order"] == "lambda")
    assert document["scores"] == found.heads.to_dict("records")
    text = reading(store, "heads", "--max-drop", "99%").out
    assert "films · average · λ ascending, within a drop of 99 % on these validation rows:" in text


def test_lambda_is_written_and_read_to_the_last_digit(
    store: Path, found: FinishedStudy, tmp_path: Path
) -> None:
    (tmp_path / "lambda.tsv").write_text(reading(store, "heads", "--tsv").out)
    scores = papa.load_scores(tmp_path / "lambda.tsv", layers=2, heads=12)
    assert np.array_equal(scores["score"], found.heads["score"])


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


def test_it_is_compared_and_listed(store: Path, found: FinishedStudy, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(found.folder, copied)
    reading(store, "compare", str(copied), "--to", str(tmp_path / "to"))
    table = pandas.read_csv(tmp_path / "to" / "compare.csv")
    means = {name: own["mean"].tolist() for name, own in table.groupby("study")}
    assert means["alone"] == means[str(copied)] == found.summary["mean"].tolist()
    assert f"finished\t{store}/studies/alone/report.html" in said("list", "--store", str(store)).out


@pytest.mark.parametrize(
    "name", ["manifest.json", "summary.csv", "heads.parquet", "results.parquet"]
)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"0.99")])
def test_results_are_believed_only_as_they_were_written(
    found: FinishedStudy, tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(found.folder, copied)
    damage(copied / name)
    for command in ("heads", "compare"):
        line = refusal(said(command, str(copied), "--store", str(found.store.root)))
        assert name in line


def test_what_is_missing_is_one_sentence(store: Path, tmp_path: Path) -> None:
    line = refusal(said("heads", "alon", "--store", str(store)))
    assert f"there is no finished study 'alon' in {store}: it has alone" in line
    (store / "studies" / "begun.yaml").write_text("name: begun\n")
    line = refusal(said("report", "begun", "--store", str(store)))
    assert f"study 'begun' is not finished in {store}: run 'papa run {store}/studies/begun" in line


def test_shares() -> None:
    for text, share in (("1%", 0.01), ("0.5 %", 0.005), ("0.02", 0.02), ("0", 0.0)):
        assert parse_share(text) == pytest.approx(share)
    for text in ("1", "-1%", "100%", "one", "", "nan", "%"):
        with pytest.raises(SpecError, match=r"--max-drop .*: give a percentage such as 1%"):
            parse_share(text)
