"""What a tokenised corpus is on disk: shards, metadata, digests, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from papa.corpora import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.corpora.corpus import CORPUS
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError, DataError
from papa.spec import LayoutSpec, TaskSpec
from papa.storage.artifacts import sha256_of_file, sha256_of_json, signed
from tests.corpora.conftest import MLM, PAIR, Build, Make


def test_sharding_changes_files_and_nothing_else(
    shared: Path, make_task: Make, corpus_of: Build, bert: Any
) -> None:
    folder = shared / "data" / "wikitext_raw"
    task = make_task(
        folder / "validation.txt",
        folder / "test.txt",
        **MLM,
        slots=32,
        train_rows=100,
        validation_rows=50,
    )
    whole, parts = (
        corpus_of(task, bert).split("train"),
        corpus_of(task, bert, shard_rows=33).split("train"),
    )
    assert len(whole.shards) == 1
    assert len(parts.shards) == 4
    for name in (
        "labels",
        "lengths",
        "offsets",
        "first_lengths",
        "probed_lengths",
        "rows",
    ):
        assert (getattr(whole, name) == getattr(parts, name)).all(), name
    mixed = [99, 3, 40, 33, 3]
    for rows in (None, mixed):
        for name in ("input_ids", "slot_ids", "token_type_ids", "lengths", "first_lengths"):
            assert (getattr(whole.tokens(rows), name) == getattr(parts.tokens(rows), name)).all(), (
                name
            )
    assert (parts.tokens(mixed).input_ids != parts.tokens(sorted(mixed)).input_ids).any(), (
        "the control: order counts"
    )
    assert (
        parts.labels_of(mixed) == np.concatenate([parts.labels_of([row]) for row in mixed])
    ).all()
    other = corpus_of(task.model_copy(update={"mask_seed": 1}), bert).split("train")
    assert (whole.labels != other.labels).any(), "the control: another seed hides other tokens"


def test_a_shard_is_a_view_with_the_splits_row_numbers(
    cola: TaskSpec, bert: Any, corpus_of: Build
) -> None:
    split = corpus_of(cola, bert, shard_rows=400).split("validation")
    assert [len(split.shard(index)) for index in range(3)] == [400, 400, 243]
    shard = split.shard(1)
    assert shard.rows.tolist() == list(range(400, 800))
    assert shard.labels.tolist() == split.labels[400:800].tolist()
    rows = [799, 400, 555]
    for name in ("input_ids", "slot_ids", "token_type_ids", "lengths"):
        assert (getattr(shard.tokens(rows), name) == getattr(split.tokens(rows), name)).all()
    with pytest.raises(IndexError, match="rows 400 to 799 are here"):
        shard.tokens([400, 399])
    with pytest.raises(IndexError, match="rows 400 to 799 are here"):
        shard.tokens([800])


def test_shards_are_mapped_not_read(cola: TaskSpec, bert: Any, corpus_of: Build) -> None:
    split = corpus_of(cola, bert, shard_rows=10_000).split("train")
    before = pa.total_allocated_bytes()
    ids = split.tokens().input_ids
    assert pa.total_allocated_bytes() == before
    assert not ids.flags.writeable
    assert not ids.flags.owndata


def test_regression_labels_are_floats(make_task: Make, corpus_of: Build, bert: Any) -> None:
    rows = [
        {"sentence1": "a", "sentence2": "b", "label": 2.5},
        {"sentence1": "c", "sentence2": "d", "label": 0},
    ]
    corpus = corpus_of(make_task(rows, **PAIR, metric="spearman"), bert)
    assert corpus.split("train").labels.dtype == np.float32
    assert corpus.split("train").labels.tolist() == [2.5, 0]
    assert corpus.label_names is None


def test_other_names_of_the_same_classes_are_another_corpus(
    make_task: Make, corpus_of: Build, bert: Any, tmp_path: Path
) -> None:
    """A source renames its classes and keeps their numbers: what was trained on it must not be
    taken for the new.
    """
    from datasets import ClassLabel, Dataset, Features, Value

    found = []
    for names in (["no", "yes"], ["yes", "no"], ["no", "yes"]):
        features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
        Dataset.from_dict({"text": ["a b", "c"], "label": [0, 1]}, features).to_parquet(
            tmp_path / "rows.parquet"
        )
        corpus = corpus_of(make_task(tmp_path / "rows.parquet"), bert)
        assert corpus.label_names == tuple(names)
        found.append((corpus.metadata["digest"], corpus.split("train").labels.tolist()))
    assert found[0] == found[2]
    assert found[0][1] == found[1][1], "the control: the rows are the same"
    assert found[0][0] != found[1][0]


def test_the_digest_covers_all_that_later_stages_read(
    make_task: Make, corpus_of: Build, bert: Any
) -> None:
    """A corpus is known by the digest of its files, so what is read must lie in them, not in the
    metadata alone.
    """
    corpus = corpus_of(
        make_task([{"text": "a b", "label": 0}, {"text": "c", "label": 1}] * 3), bert, shard_rows=4
    )
    path = corpus.folder.parent / "metadata.json"
    sound = json.loads(path.read_text())
    needed = ("stage", "version", "files", "digest")
    path.write_text(
        json.dumps(signed({key: value for key, value in sound.items() if key in needed}))
    )
    again = load_corpus(corpus.folder)
    for field in fields(TokenisedCorpus):
        if field.name != "metadata":
            assert getattr(again, field.name) == getattr(corpus, field.name), field.name
    for name in ("train", "validation"):
        assert (
            again.split(name).tokens([0, 5]).lengths.tolist()
            == corpus.split(name).tokens([0, 5]).lengths.tolist()
        )
        assert again.split(name).labels.tolist() == corpus.split(name).labels.tolist()
    # What the report shows and λ's number of workers follows from is read from the metadata, which
    # repeats the file.
    held = json.loads((corpus.folder / "corpus.json").read_text())
    assert {"rows", "tokens", "texts_cut", "words_cut", "notes", "shards"} < held.keys()
    assert held.items() <= sound.items()


def test_a_failure_leaves_nothing_behind(
    make_task: Make, bert: Any, encoder: EncoderReference, tmp_path: Path
) -> None:
    task = make_task([{"text": "a", "label": 0}], [{"text": "a", "label": 1}])
    with pytest.raises(DataError):
        tokenise_corpus(
            task, LayoutSpec(), bert, encoder, tmp_path / "out" / "corpus", shard_rows=8
        )
    assert not list(tmp_path.glob("out/*"))


def test_damaged_artifacts_are_refused(make_task: Make, bert: Any, corpus_of: Build) -> None:
    folder = corpus_of(make_task([{"text": "a", "label": 0}]), bert).folder
    metadata = folder.parent / "metadata.json"
    sound = metadata.read_text()
    for old, new in (('"version": 4', '"version": 1'), ('"slots": 16', '"slots": 8')):
        assert sound.count(old) == 1
        metadata.write_text(sound.replace(old, new))
        with pytest.raises(ArtifactError, match="'metadata_digest' is not that of what it says"):
            load_corpus(folder)
    metadata.write_text(sound)
    shard = folder / "train-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ArtifactError, match="damaged"):
        load_corpus(folder)


def beside_metadata(data: Path) -> Path:
    """A copy of an artifact with its data beside the metadata, where a new digest moves nothing."""
    folder = data.with_name("flat") / "corpus"
    shutil.copytree(data, folder)
    shutil.copy(data.parent / "metadata.json", folder)
    return folder


@pytest.mark.parametrize("file", ["../secret.txt", "extra.arrow"])
def test_a_corpus_reads_none_but_its_own_files(
    make_task: Make, bert: Any, corpus_of: Build, file: str
) -> None:
    """Whatever its description names, were it signed."""
    folder = beside_metadata(corpus_of(make_task([{"text": "a", "label": 0}]), bert).folder)
    (folder / file).write_bytes((folder / "train-00000.arrow").read_bytes())
    metadata = json.loads((folder / "metadata.json").read_text())
    held = json.loads((folder / CORPUS).read_text())

    def sign(*covered: str) -> None:
        files = {name: sha256_of_file(folder / name) for name in covered}
        changed = {**metadata, "files": files, "digest": sha256_of_json(files)}
        (folder / "metadata.json").write_text(json.dumps(signed(changed)))

    shards = [name for name in metadata["files"] if name != CORPUS]
    sign(*shards, CORPUS)
    load_corpus(folder)
    sign(*shards)
    with pytest.raises(ArtifactError, match=f"names no {CORPUS}"):
        load_corpus(folder)
    held["shards"]["train"].append({"file": file, "rows": 1})
    (folder / CORPUS).write_text(json.dumps(held))
    sign(*shards, CORPUS)
    with pytest.raises(ArtifactError, match=f"names a shard '{file}' that is none of its files"):
        load_corpus(folder)
