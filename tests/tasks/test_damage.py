"""One flipped bit in what a stage reads is found, also where the file still parses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.storage.artifacts import published, reference, remove
from papa.study.probe import SCORES, ProbeScores, ScoredSeed, read_scores
from papa.study.rank import LAMBDA, read_lambda
from tasks.mlflow_client import connect
from tasks.mlflow_parents import ScoredParent
from tasks.mlflow_results import RESULTS, log_files
from tests.reporting.studies import results, study

ENCODER = EncoderReference("name", None, "/folder", "weights", "words", "bert", 2, 3, 12, 64)


def make(folder: Path, name: str, text: str) -> Path:
    with published(folder, {}) as scratch:
        (scratch / name).write_text(text)
    return folder


def flip(path: Path, old: str, new: str) -> None:
    """Change one bit of a file."""
    assert bin(ord(old) ^ ord(new)).count("1") == 1
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_lambda_of_other_bits_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "rank"
    with published(folder, {}) as scratch:
        save_file({"lambda_by_epoch": np.array([[[0.25, 0.5]]])}, scratch / LAMBDA)
    assert read_lambda({3: reference(folder)}).by_epoch[3].tolist() == [[[0.25, 0.5]]]
    content = (folder / LAMBDA).read_bytes()
    (folder / LAMBDA).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=rf"{LAMBDA} is damaged .*delete {folder} and run again"):
        read_lambda({3: reference(folder)})


def test_scores_of_other_bits_are_refused(tmp_path: Path) -> None:
    found = ProbeScores((ScoredSeed(0, 0.6, 1.0),), None, 0.25, ((0, 1),), 12, 2.0, "cpu")
    folder = tmp_path / "probe"
    with published(folder, {}) as scratch:
        found.save(scratch)
    assert json.loads((folder / SCORES).read_text())["unseen_share"] == 0.25
    assert read_scores(folder) == found
    flip(folder / SCORES, "6", "7")
    with pytest.raises(ArtifactError, match=f"{SCORES} is damaged"):
        read_scores(folder)


@pytest.mark.usefixtures("mlflow_database")
def test_nothing_damaged_is_logged(tmp_path: Path) -> None:
    client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.create_experiment("damage", artifact_location=(tmp_path / "logged").as_uri())
    run = client.create_run(experiment).info.run_id
    ranking = make(tmp_path / "rank", LAMBDA, "0.1")
    report = make(tmp_path / "results", "summary.csv", "0.6")
    task = study(results()).tasks[0]
    parent = ScoredParent("m", ENCODER, task, (), (), {}, {7: reference(ranking)})

    def logged() -> set[str]:
        return {file.path for place in ("lambda", RESULTS) for file in client.list_artifacts(run, place)}

    flip(ranking / LAMBDA, "1", "3")
    with pytest.raises(ArtifactError, match=f"{LAMBDA} is damaged"):
        log_files(client, run, parent, reference(report))
    assert logged() == set()
    remove(ranking)
    make(ranking, LAMBDA, "0.1")
    flip(report / "summary.csv", "6", "7")
    with pytest.raises(ArtifactError, match=r"summary.csv is damaged"):
        log_files(client, run, parent, reference(report))
    assert logged() == {"lambda/seed-7"}
    remove(report)
    log_files(client, run, parent, reference(make(report, "summary.csv", "0.6")))
    assert logged() == {"lambda/seed-7", f"{RESULTS}/summary.csv", f"{RESULTS}/metadata.json"}
