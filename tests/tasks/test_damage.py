"""One flipped bit in what a stage reads is found, also where the file still parses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from papa.errors import ArtifactError
from papa.storage.artifacts import published, reference
from papa.study.probe import SCORES, ProbeScores, ScoredSeed, read_scores
from papa.study.rank import LAMBDA, read_lambda
from papa.study.store import Store
from tasks.mlflow import connect
from tests.tasks.tracked import address_in, assert_whole, log_study, logged, make, tracked


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
    with pytest.raises(
        ArtifactError, match=rf"{LAMBDA} is damaged .*delete {folder} and run again"
    ):
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
@pytest.mark.parametrize("what", ["constants", "ranking", "results"])
def test_nothing_damaged_is_logged(tmp_path: Path, what: str) -> None:
    address, store = address_in(tmp_path), Store(tmp_path)
    track = tracked("damage", address)
    make(track, store)
    (part, *_) = track.parents
    step = {
        "constants": part.constants["average"],
        "ranking": part.rankings["lambda"][0],
        "results": track.results,
    }[what]
    folder = step.reference(store).folder
    file = folder / ("results.parquet" if what == "results" else f"{step.stage}.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=f"{file.name} is damaged"):
        log_study("damage", store, address)
    client = connect(address)
    for run in logged(address, "damage").query("role == 'parent'")["id"]:
        assert not client.list_artifacts(run, "results")
    file.write_bytes(content)
    log_study("damage", store, address)
    assert_whole(logged(address, "damage"))
