"""What a tokenised corpus is on disk: shards, metadata, digests, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from papa.corpora.corpus import CORPUS, load_corpus
from papa.errors import ArtifactError
from papa.files import sha256_of_file
from papa.storage.artifacts import signed
from tests.corpora.conftest import COLA, MLM, Build, Make

TOKENS = ("input_ids", "slot_ids", "token_type_ids", "lengths", "first_lengths")
ROWS = [{"text": "a b", "label": 0}, {"text": "c", "label": 1}] * 3


def test_sharding_changes_files_and_nothing_else(real: Make, corpus_of: Build, bert: Any) -> None:
    task = real(
        "wikitext_raw", "validation", "test", **MLM, slots=32, train_rows=100, validation_rows=50
    )
    whole = corpus_of(task, bert).split("train")
    parts = corpus_of(task, bert, shard_rows=33).split("train")
    assert (len(whole.shards), len(parts.shards)) == (1, 4)
    for name in ("labels", "lengths", "first_lengths", "probed_lengths", "rows"):
        assert (getattr(whole, name) == getattr(parts, name)).all(), name
    mixed = [99, 3, 40, 33, 3]
    for rows in (None, mixed):
        for name in TOKENS:
            assert (getattr(whole.tokens(rows), name) == getattr(parts.tokens(rows), name)).all()
    ordered = parts.tokens(sorted(mixed)).input_ids
    assert (parts.tokens(mixed).input_ids != ordered).any(), "the control: order counts"
    single = np.concatenate([parts.labels_of([row]) for row in mixed])
    assert (parts.labels_of(mixed) == single).all()
    other = corpus_of(task.model_copy(update={"mask_seed": 1}), bert).split("train")
    assert (whole.labels != other.labels).any(), "the control: another seed hides other tokens"


def test_a_shard_is_a_view_with_the_splits_row_numbers(
    real: Make, bert: Any, corpus_of: Build
) -> None:
    split = corpus_of(real("cola", **COLA), bert, shard_rows=400).split("validation")
    assert [len(split.shard(index)) for index in range(3)] == [400, 400, 243]
    shard, rows = split.shard(1), [799, 400, 555]
    assert shard.rows.tolist() == list(range(400, 800))
    assert shard.labels.tolist() == split.labels[400:800].tolist()
    for name in TOKENS:
        assert (getattr(shard.tokens(rows), name) == getattr(split.tokens(rows), name)).all()
    for outside in ([400, 399], [800]):
        with pytest.raises(IndexError, match="rows 400 to 799 are here"):
            shard.tokens(outside)
    before = pa.total_allocated_bytes()
    ids = split.shard(0).tokens().input_ids
    assert pa.total_allocated_bytes() == before, "shards are mapped, not read"
    assert not ids.flags.writeable
    assert not ids.flags.owndata


def test_a_corpus_reads_none_but_its_own_files(
    make_task: Make, bert: Any, corpus_of: Build
) -> None:
    """Whatever its description names, were it signed."""
    data = corpus_of(make_task(ROWS), bert).folder
    # Its data beside the metadata, where a new digest moves nothing.
    folder = shutil.copytree(data, data.with_name("flat") / "corpus")
    metadata = json.loads((data.parent / "metadata.json").read_text())
    own, other = [name for name in metadata["files"] if name != CORPUS], "train-00001.arrow"
    shutil.copy(folder / "train-00000.arrow", folder / other)

    def loaded(*covered: str) -> int:
        files = {name: sha256_of_file(folder / name) for name in covered}
        (folder / "metadata.json").write_text(json.dumps(signed({**metadata, "files": files})))
        return len(load_corpus(folder).split("train"))

    assert loaded(*own, CORPUS) == len(ROWS)
    with pytest.raises(ArtifactError, match=f"names no {CORPUS}"):
        loaded(*own)
    held = json.loads((folder / CORPUS).read_text())
    held["shards"]["train"].append({"file": other, "rows": len(ROWS)})
    (folder / CORPUS).write_text(json.dumps(held))
    with pytest.raises(ArtifactError, match="names shards that are none of its files"):
        loaded(*own, CORPUS)
    assert loaded(*own, other, CORPUS) == 2 * len(ROWS), "the control"
    content = bytearray((folder / other).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / other).write_bytes(content)
    with pytest.raises(ArtifactError, match="damaged"):
        load_corpus(folder)
