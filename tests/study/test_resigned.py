"""Artifacts that somebody changed and signed again: their digests fit, what they hold does not, and
one sentence says which."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
import torch
from safetensors.torch import load_file, save_file

from papa.attention.constants import FILE, ConstantMatrices
from papa.corpora.corpus import load_corpus, tokenise_corpus
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.spec import LayoutSpec
from papa.storage.artifacts import (
    METADATA,
    ArtifactReference,
    describe,
    metadata_bytes,
    published,
    reference,
)
from papa.study.stages.probe import (
    BASELINE,
    EXAMPLES,
    SCORES,
    ProbeScores,
    ScoredSeed,
    read_baseline,
    read_examples,
    read_scores,
)
from papa.study.stages.rank import LAMBDA, read_head_scores
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


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.flatten(0, 1),
        lambda tensor: tensor[..., :2, :2].contiguous(),
        lambda tensor: tensor.to(torch.int32),
    ],
)
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
    tokenise_corpus(task, LayoutSpec(), bert, folder, shard_rows=8)
    signed_again(folder)
    assert len(load_corpus(folder).split("train")) == 6
    shard = reference(folder).folder / "train-00000.arrow"
    with pa.ipc.open_file(pa.OSFile(str(shard))) as file:
        batch = change(file.get_batch(0))
    with pa.OSFile(str(shard), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    signed_again(folder)
    refused(folder, lambda: load_corpus(folder))


def row_scores(**changes: Any) -> str:
    scored = ProbeScores((ScoredSeed(0, 0.6, 1.0),), None, 0.25, ((0, 1),), 12, 2.0, "cpu")
    return json.dumps(asdict(scored) | changes)


WORTH = {
    "always_one_answer": {"score": 0.5, "answer": None},
    "word_embeddings": [{"seed": 0, "score": 0.6, "seconds": 1.0}],
}
ONE, LAMBDAS = {"examples": torch.rand(1, 3, 2).double()}, torch.rand(4, 2, 3)
BOTH = {"always_one_answer": ONE["examples"][0].clone(), "word_embeddings": ONE["examples"]}


def read_lambdas(made: ArtifactReference) -> np.ndarray:
    return read_head_scores("lambda", {0: made}, ENCODER).mean


READERS: list[tuple[Callable[[ArtifactReference], Any], dict[str, Any], str, Any]] = [
    (read_scores, {SCORES: row_scores(), EXAMPLES: ONE}, SCORES, row_scores(constant_heads=[1])),
    (read_examples, {EXAMPLES: ONE}, EXAMPLES, {"examples": torch.rand(2, 3).double()}),
    (
        read_baseline,
        {BASELINE: json.dumps(WORTH), EXAMPLES: BOTH},
        EXAMPLES,
        BOTH | {"word_embeddings": torch.rand(2, 3, 2).double()},
    ),
    (
        read_lambdas,
        {LAMBDA: {"lambda_by_epoch": LAMBDAS}},
        LAMBDA,
        {"lambda_by_epoch": torch.rand(4, 3, 2)},
    ),
]


def written(folder: Path, files: dict[str, Any]) -> Path:
    """An artifact of texts and tensors."""
    with published(folder, {}) as scratch:
        for name, content in files.items():
            if isinstance(content, str):
                (scratch / name).write_text(content)
            else:
                save_file(content, scratch / name)
    return folder


@pytest.mark.parametrize(("read", "sound", "name", "other"), READERS)
def test_what_a_stage_found(
    tmp_path: Path,
    read: Callable[[ArtifactReference], Any],
    sound: dict[str, Any],
    name: str,
    other: Any,
) -> None:
    read(reference(written(tmp_path / "sound", sound)))
    folder = written(tmp_path / "other", sound | {name: other})
    refused(folder, partial(read, reference(folder)))
