"""Artifacts that somebody changed and signed again: their digests fit, what they hold does not, and
one sentence says which."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
import torch
from safetensors.torch import load_file, save_file

from papa.attention.constants import FILE, ConstantMatrices
from papa.corpora import load_corpus, tokenise_corpus
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.spec import LayoutSpec
from papa.storage.artifacts import METADATA, describe, metadata_bytes, published, reference
from papa.study.stages.probe import SCORES, ProbeScores, ScoredSeed, read_scores
from tests.corpora.conftest import bert, make_task  # noqa: F401

ENCODER = EncoderReference("name", None, "/folder", "weights", "words", "bert", 2, 3, 12, 64)
SHAPE = (2, 3, 4, 4)
Change = Callable[[Any], Any]


def signed_again(folder: Path) -> None:
    metadata = json.loads((folder / METADATA).read_text())
    data = reference(folder).folder
    changed = describe(data, metadata)
    data.rename(folder / changed["digest"])
    (folder / METADATA).write_bytes(metadata_bytes(changed))


def refused(folder: Path, read: Callable[[], object]) -> None:
    with pytest.raises(ArtifactError) as caught:
        read()
    sentence = str(caught.value)
    assert sentence.startswith(f"{folder} holds what no step of this PAPA makes (")
    assert sentence.endswith("): delete it and run again")
    assert len(sentence.splitlines()) == 1


CHANGES: list[Change] = [
    lambda tensor: tensor.flatten(0, 1),
    lambda tensor: tensor[..., :2, :2].contiguous(),
    lambda tensor: tensor.to(torch.int32),
]


@pytest.mark.parametrize("change", CHANGES)
def test_constant_matrices(tmp_path: Path, change: Change) -> None:
    folder = tmp_path / "constants"
    matrices = ConstantMatrices(
        torch.rand(*SHAPE), torch.ones(4, 4, dtype=torch.bool), "average", torch.ones(4, 4)
    )
    matrices.save(folder, ENCODER, {"stage": "average"})
    signed_again(folder)
    loaded = ConstantMatrices.load(folder, encoder=ENCODER, slots=4)
    assert torch.equal(loaded.matrices, matrices.matrices)
    path = reference(folder).folder / FILE
    save_file({name: change(tensor) for name, tensor in load_file(path).items()}, path)
    signed_again(folder)
    refused(folder, lambda: ConstantMatrices.load(folder, encoder=ENCODER, slots=4))


def column(name: str, change: Change) -> Change:
    """Change the values of a column of a shard."""

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        found, values = batch.column(name), change(batch.column(name).flatten().to_numpy())
        other = pa.array(values, found.type.value_type)
        other = pa.ListArray.from_arrays(found.offsets, other)
        return batch.set_column(batch.schema.names.index(name), name, other)

    return changed


@pytest.mark.parametrize(
    "change",
    [
        column("input_ids", lambda values: values * 0 - 1),
        column("token_type_ids", lambda values: values + 2),
        lambda batch: batch.slice(1).take(pa.array([0])),
        lambda batch: batch.drop_columns(["slots"]),
    ],
)
def test_corpora(tmp_path: Path, make_task: Any, bert: Any, change: Change) -> None:  # noqa: F811
    rows = [{"text": f"row number {row}", "label": row % 2} for row in range(6)]
    folder = tmp_path / "corpus"
    task = make_task(rows, slots=16)
    tokenise_corpus(task, LayoutSpec(), bert, ENCODER, folder, shard_rows=8)
    signed_again(folder)
    assert len(load_corpus(folder).split("train")) == 6
    shard = reference(folder).folder / "train-00000.arrow"
    with pa.ipc.open_file(pa.OSFile(str(shard))) as file:
        batch = change(file.get_batch(0))
    with pa.OSFile(str(shard), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    signed_again(folder)
    refused(folder, lambda: load_corpus(folder))


def test_scores_of_a_probe(tmp_path: Path) -> None:
    scored = ProbeScores((ScoredSeed(0, 0.6, 1.0),), None, 0.25, ((0, 1),), 12, 2.0, "cpu")
    for name, changes in (("sound", {}), ("other", {"constant_heads": [1]})):
        with published(tmp_path / name, {}) as scratch:
            (scratch / SCORES).write_text(json.dumps(asdict(scored) | changes))
    assert read_scores(reference(tmp_path / "sound")) == scored
    refused(tmp_path / "other", lambda: read_scores(reference(tmp_path / "other")))
