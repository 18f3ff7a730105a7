"""Artifacts that somebody changed and signed again: their digests fit, what they hold does not, and
one sentence says which."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
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
from papa.storage.artifacts import fetched, published, reference
from papa.storage.metadata import METADATA, describe, metadata_bytes
from papa.study.results import measured_of
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
    data = fetched(folder)
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


TENSORS: list[Change] = [
    lambda found: {name: tensor.flatten(0, 1) for name, tensor in found.items()},
    lambda found: {name: tensor[..., :2, :2].contiguous() for name, tensor in found.items()},
    lambda found: {name: tensor[:1].contiguous() for name, tensor in found.items()},
    lambda found: {name: tensor.to(torch.int32) for name, tensor in found.items()},
    lambda found: {f"other {name}": tensor for name, tensor in found.items()},
]


@pytest.mark.parametrize("change", TENSORS)
def test_constant_matrices(tmp_path: Path, change: Change) -> None:
    folder = tmp_path / "constants"
    matrices = ConstantMatrices(
        torch.rand(*SHAPE), torch.ones(4, 4, dtype=torch.bool), "average", torch.ones(4, 4)
    )
    matrices.save(folder, ENCODER, {"stage": "average"})
    signed_again(folder)
    assert torch.equal(
        ConstantMatrices.load(folder, encoder=ENCODER, slots=4).matrices, matrices.matrices
    )
    path = fetched(folder) / FILE
    save_file(change(load_file(path)), path)
    signed_again(folder)
    refused(folder, lambda: ConstantMatrices.load(folder, encoder=ENCODER, slots=4))


def columns(**changed: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Change the values of some columns of a shard."""

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, to in changed.items():
            column = batch.column(name)
            if pa.types.is_list(column.type):
                values = pa.array(to(column.values.to_numpy()), column.type.value_type)
                column = pa.ListArray.from_arrays(column.offsets, values)
            else:
                column = pa.array(to(column.to_numpy()), column.type)
            batch = batch.set_column(batch.schema.names.index(name), name, column)
        return batch

    return change


@pytest.mark.parametrize(
    "change",
    [
        columns(slots=lambda found: found + 16),
        columns(slots=lambda found: found - 1),
        columns(input_ids=lambda found: found * 0 - 1),
        columns(label=lambda found: found + 2),
        columns(n_first=lambda found: found + 100),
        columns(token_type_ids=lambda found: found + 2),
        lambda batch: batch.slice(1).take(pa.array([0])),
        lambda batch: batch.drop_columns(["slots"]),
        lambda batch: batch.set_column(0, "input_ids", pa.array(["a"] * batch.num_rows)),
    ],
)
def test_corpora(tmp_path: Path, make_task: Any, bert: Any, change: Change) -> None:  # noqa: F811
    task = make_task(
        [{"text": f"row number {row}", "label": row % 2} for row in range(6)], slots=16
    )
    folder = tmp_path / "corpus"
    tokenise_corpus(task, LayoutSpec(), bert, ENCODER, folder, shard_rows=8)
    signed_again(folder)
    assert len(load_corpus(folder).split("train")) == 6
    shard = fetched(folder) / "train-00000.arrow"
    with pa.ipc.open_file(pa.OSFile(str(shard))) as file:
        batch = change(file.get_batch(0))
    with pa.OSFile(str(shard), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    signed_again(folder)
    refused(folder, lambda: load_corpus(folder))


ROW = {"seed": 0, "score": 0.6, "seconds": 1.0}
SCORED = ProbeScores((ScoredSeed(**ROW),), None, 0.25, ((0, 1),), 12, 2.0, "cpu")
BASELINES = {
    "always_one_answer": {"score": 0.5, "answer": None},
    "word_embeddings": [ROW],
    "seconds": 1,
}
NO_DOCUMENTS = ["{", "[]", "{}", "null", "[" * 100_000, '{"shards": {"train": 1}}']


def of_probe(*shape: int, text: str | None = None, **changes: Any) -> dict[str, Any]:
    examples = {"examples": torch.rand(*shape or (1, 3, 2)).double()}
    return {SCORES: text or json.dumps(asdict(SCORED) | changes), EXAMPLES: examples}


def of_baseline(*shape: int, text: str | None = None) -> dict[str, Any]:
    words = torch.rand(*shape or (1, 3, 2)).double()
    examples = {"always_one_answer": torch.rand(3, 2).double(), "word_embeddings": words}
    return {BASELINE: text or json.dumps(BASELINES), EXAMPLES: examples}


def of_rank(*shape: int) -> dict[str, Any]:
    return {LAMBDA: {"lambda_by_epoch": torch.rand(*shape)}}


def written(folder: Path, files: dict[str, Any]) -> Path:
    """An artifact of texts and tensors."""
    with published(folder, {}) as scratch:
        for name, content in files.items():
            if isinstance(content, str):
                (scratch / name).write_text(content)
            else:
                save_file(content, scratch / name)
    return folder


def read_lambdas(folder: Path) -> np.ndarray:
    return read_head_scores("lambda", {0: reference(folder)}, ENCODER).mean


READERS: list[tuple[Callable[[Path], Any], str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        read_scores,
        SCORES,
        of_probe(),
        [
            *(of_probe(text=text) for text in NO_DOCUMENTS),
            of_probe(scores=[{"seed": 0}]),
            of_probe(scores=1),
            of_probe(heads="many"),
            of_probe(constant_heads=[1]),
        ],
    ),
    (read_examples, EXAMPLES, of_probe(), [of_probe(2, 3)]),
    (
        read_baseline,
        BASELINE,
        of_baseline(),
        [
            *(of_baseline(text=text) for text in NO_DOCUMENTS),
            *(of_baseline(*shape) for shape in ((3, 2), (2, 3, 2), (1, 4, 2), (1, 3, 1))),
        ],
    ),
    (
        read_lambdas,
        LAMBDA,
        of_rank(4, 2, 3),
        [of_rank(*shape) for shape in ((6,), (2, 3), (4, 3, 2), (4, 2, 3, 1))],
    ),
]


@pytest.mark.parametrize(
    ("read", "sound", "other"),
    [(read, sound, other) for read, _, sound, others in READERS for other in others],
)
def test_what_a_stage_found(
    tmp_path: Path, read: Callable[[Path], Any], sound: dict[str, Any], other: dict[str, Any]
) -> None:
    read(written(tmp_path / "sound", sound))
    folder = written(tmp_path / "other", other)
    refused(folder, lambda: read(folder))


@pytest.mark.parametrize(("read", "name", "sound"), [reader[:3] for reader in READERS])
def test_one_flipped_bit_is_found_also_where_the_file_still_parses(
    tmp_path: Path, read: Callable[[Path], Any], name: str, sound: dict[str, Any]
) -> None:
    folder = written(tmp_path / "artifact", sound)
    path = fetched(folder) / name
    content = path.read_bytes()
    flipped = content.replace(b"0.6", b"0.7") if name in (SCORES, BASELINE) else None
    path.write_bytes(flipped or content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=rf"{name} is damaged .*delete {folder} and run again"):
        read(folder)


def test_scores_are_read_as_written(tmp_path: Path) -> None:
    with published(tmp_path / "probe", {}) as scratch:
        SCORED.save(scratch)
    assert read_scores(tmp_path / "probe") == SCORED
    assert read_lambdas(written(tmp_path / "rank", of_rank(4, 2, 3))).shape == (2, 3)


def test_examples_of_other_seeds_than_the_scores(tmp_path: Path) -> None:
    examples, scores = torch.rand(2, 3, 2).double().numpy(), [ScoredSeed(0, 0.6, 1.0)]
    refused(tmp_path, lambda: measured_of("accuracy", [(scores, examples)], tmp_path))
    refused(tmp_path, lambda: measured_of("accuracy", [(scores, examples[:1, :, :1])], tmp_path))
