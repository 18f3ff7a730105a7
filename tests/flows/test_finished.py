"""What is read of a finished study when its training files and its encoder are gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from papa.models.reference import EncoderReference
from papa.scores.summary import summarise
from papa.scores.verdicts import drops_of_all_lines
from papa.storage.artifacts import metadata_below, published, verified
from papa.storage.store import Store
from papa.tasks.cell import read_scores
from papa.tasks.head_scores import read_head_scores
from papa.tasks.manifest import (
    HEADS,
    MANIFEST,
    RESULTS,
    SPECIFICATION,
    SUMMARY,
    FinishedStudy,
    Manifest,
    open_study,
    specification,
)
from papa.tasks.study_files import place_results
from tests.finished import finish_study
from tests.flows.conftest import Finished, invoke, refusal, rows_in, task_on, write_study
from tests.reporting.studies import results, study
from tests.storage.artifacts import reference

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
            stored = read_scores(finished_study.artifact(probe.artifact))
            assert stored.constant_heads == probe.constant_heads
            assert {score.seed for score in stored.scores} == set(probe.seeds)
            assert (probe.constants is None) == (cell.fraction == 1)
        if (*cell.line[3:], cell.fraction) == ("first_to_last", 0.5):
            assert cell.constant_heads == tuple((0, head) for head in range(12))
    for entry in manifest.averages:
        assert verified(finished_study.artifact(entry.artifact))


def test_head_scores_are_exact(finished_study: FinishedStudy) -> None:
    rankings = {}
    for training in metadata_below(f"{finished_study.store.artifacts}/train_lambda").values():
        artifact = finished_study.artifact(f"train_lambda/{training['key']}")
        rankings[training["spec"]["seed"]] = artifact
    rankings = dict(sorted(rankings.items()))
    trained = read_head_scores("lambda", rankings)
    heads = finished_study.heads
    assert list(heads[["layer", "head"]].itertuples(index=False, name=None)) == [*np.ndindex(2, 12)]
    bounds = dict(zip(("low", "high"), trained.interval, strict=True))
    for name, values in {"score": trained.mean, **bounds}.items():
        assert np.array_equal(heads[name], values.ravel())


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


def write_invented_study(store: Store, frame: pandas.DataFrame) -> None:
    """Results that no model gave, as a finished study's."""
    spec = study(frame)
    encoder = EncoderReference(
        name="invented",
        revision=None,
        folder="",
        digest="",
        tokenizer_digest="",
        model_type="bert",
        layers=6,
        heads=12,
        width=384,
        positions=512,
    )
    encoders = dict.fromkeys(frame["encoder"], encoder)
    document = Manifest(study=spec.name, encoders=encoders, cells=())
    address = store.folder("aggregate", "0" * 64)
    with published(address, {}) as folder:
        frame.to_parquet(folder / RESULTS)
        summarise(frame).to_csv(folder / SUMMARY, index=False)
        pandas.DataFrame().to_parquet(folder / HEADS)
        (folder / MANIFEST).write_text(document.model_dump_json())
        (folder / SPECIFICATION).write_text(specification(spec))
    place_results(store, spec.name, reference(address))


def test_drops_of_many_lines_are_tested_at_once(tmp_path: Path) -> None:
    frame = results(encoders=[f"encoder {line}" for line in range(10)], fractions=(1.0, 0.0))
    invented = Store(tmp_path)
    invented.make()
    write_invented_study(invented, frame)
    done = invoke("heads", "example", "--store", str(tmp_path), "--json")
    assert done.code == 0, done.err
    answers = json.loads(done.out)["answers"]
    bounds = [answer["counts"][0]["drop_high"] for answer in answers]
    of_all, of_each = (
        summary[summary["fraction"] == 0]["drop_high"].tolist()
        for summary in (drops_of_all_lines(frame), summarise(frame))
    )
    assert bounds == pytest.approx(of_all)
    assert bounds != pytest.approx(of_each), "negative control"


def test_stores_are_compared(store: Path, finished_study: FinishedStudy, tmp_path: Path) -> None:
    """A study by its name, and results of another store by their folder."""
    copied = tmp_path / "copied"
    to = tmp_path / "new"
    shutil.copytree(store, copied)
    folder = str(copied / "studies" / "alone")
    reading(store, "compare", folder, "--to", str(to))
    table = pandas.read_csv(to / "compare.csv")
    for _, of_study in table.groupby("study"):
        for name in ("mean", "low", "high"):
            assert of_study[name].tolist() == finished_study.summary[name].tolist()
    assert {*table["study"]} == {"alone", folder}
    assert (to / "compare.png").stat().st_size > 1000


def test_edited_keys_are_named(tiny: tuple[str, Path], tmp_path: Path) -> None:
    file, store = tiny
    study = json.loads(Path(file).read_text())
    (task,) = study["tasks"]
    edited = write_study(tmp_path, study | {"tasks": [task | {"slots": 24}], "probe_seeds": [3, 4]})
    store_option = ("--store", str(store))
    to = ("--keep", "0.5", "--to", str(tmp_path / "to"))
    for command, options in (("heads", ()), ("compare", ()), ("export", to)):
        finished = invoke(command, edited, *options, *store_option)
        assert finished.code == 0, finished.err
        assert "probe_seeds" in finished.err
        assert "tasks.0.slots" in finished.err
    for unedited in (file, "small"):
        finished = invoke("heads", unedited, *store_option)
        assert (finished.out, finished.err) == (invoke("heads", edited, *store_option).out, "")


@pytest.mark.parametrize(
    "name", ["manifest.json", "summary.csv", "heads.parquet", "results.parquet"]
)
def test_changed_results_refused(finished_study: FinishedStudy, tmp_path: Path, name: str) -> None:
    copied = Path(shutil.copytree(finished_study.folder, tmp_path / "copied"))
    (copied / name).write_bytes(b"0.99")
    for command in ("heads", "compare"):
        finished = invoke(command, str(copied), "--store", finished_study.store.address)
        assert name in refusal(finished)
