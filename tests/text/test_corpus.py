"""Tokenised corpora: what is stored is what the tokenizer says, laid out; shards and digests."""

import json
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerBase as Tokenizer

from papa.errors import ArtifactError
from papa.files import sha256_of_file
from papa.spec import LayoutSpec, TaskSpec
from papa.storage.artifacts import signed
from papa.text.corpus import CORPUS, load_corpus
from tests.text.conftest import MLM, REVIEWS, UD, WORDS, Build, Make

TOKENS = ("input_ids", "slot_ids", "token_type_ids", "lengths", "first_lengths")
ROWS = [{"text": "a b", "label": 0}, {"text": "c", "label": 1}] * 3


def values_of_rows(split: Any, values: np.ndarray) -> list[list[int]]:
    return [row_values.tolist() for row_values in np.split(values, split.tokens().offsets[1:-1])]


def source_of(task: TaskSpec) -> list[object]:
    return [json.loads(line) for line in task.source.validation.read_text().splitlines()]  # type: ignore[union-attr]


def test_real_text_is_the_tokenizers_own(real: Make, bert: Tokenizer, corpus_of: Build) -> None:
    """Against a plain reading of the file and the tokenizer's own arrangement."""
    reviews = real("reviews", settings=REVIEWS)
    corpus = corpus_of(reviews, bert)
    source = source_of(reviews)
    split = corpus.split("validation")
    laid = corpus.split("validation").tokens()
    assert len(split) == len(source) == 280
    expected = bert([row["sentence"] for row in source])["input_ids"]
    assert values_of_rows(split, laid.input_ids) == expected
    assert values_of_rows(split, laid.slot_ids) == [[*range(len(ids) - 1), 127] for ids in expected]
    assert split.labels.tolist() == [row["label"] for row in source]
    assert split.lengths.tolist() == [len(ids) for ids in expected]
    assert corpus.label_names == ("0", "1")
    assert corpus.metadata["tokens"]["validation"] == sum(map(len, expected))
    assert corpus.metadata["texts_cut"] == {"train": 0, "validation": 0}


@pytest.mark.parametrize(("truncation", "expected_tokens"), [("full", 14), ("half", 7)])
def test_truncated_texts_are_counted(
    make_task: Make, corpus_of: Build, bert: Tokenizer, truncation: str, expected_tokens: int
) -> None:
    layout = LayoutSpec(one_text_truncation=truncation)
    task = make_task([{"text": "word " * 40, "label": 0}, {"text": "", "label": 1}])
    corpus = corpus_of(task, bert, layout=layout)
    split = corpus.split("train")
    assert split.lengths.tolist() == [expected_tokens + 2, 2]
    assert split.tokens().slot_ids.tolist() == [*range(expected_tokens + 1), 15, 0, 15]
    assert corpus.metadata["texts_cut"] == {"train": 1, "validation": 1}
    task = make_task([{"tokens": ["the"] * 20, "tags": ["DT"] * 20}], settings=WORDS)
    corpus = corpus_of(task, bert, layout=layout)
    assert corpus.metadata["words_cut"] == {"train": 6, "validation": 6}, "whole for words"


def test_words_are_labelled_on_first_tokens(real: Make, corpus_of: Build, bert: Tokenizer) -> None:
    """The tokenizer's own alignment of words is the reference; no row is cut at 512 slots."""
    task = real("ud_ewt", settings=UD, slots=512, train_rows=200)
    corpus = corpus_of(task, bert)
    split = corpus.split("validation")
    names = corpus.label_names
    assert names is not None
    ids_of_rows = values_of_rows(split, split.tokens().input_ids)
    labels_of_rows = values_of_rows(split, split.labels)
    for row, ids, labels in zip(source_of(task), ids_of_rows, labels_of_rows, strict=True):
        encoding = bert(row["tokens"], is_split_into_words=True)
        assert encoding["input_ids"] == ids
        words = encoding.word_ids(0)
        assert labels == [
            -100 if word in (None, before) else names.index(row["pos_tags"][word])
            for word, before in zip(words, [None, *words], strict=False)
        ]
    assert corpus.metadata["words_cut"] == {"train": 0, "validation": 0}


def test_labels_of_masks_restore_the_text(real: Make, corpus_of: Build, bert: Tokenizer) -> None:
    task = real("wikitext_raw", "validation", "test", settings=MLM, slots=64, train_rows=150)
    corpus = corpus_of(task, bert)
    split = corpus.split("validation")
    labels = split.labels
    shown = split.tokens().input_ids
    lines = task.source.validation.read_text().splitlines()  # type: ignore[union-attr]
    texts = [line.strip() for line in lines if line.strip()]
    whole = np.where(labels == -100, shown, labels)
    assert values_of_rows(split, whole) == bert(texts, truncation=True, max_length=64)["input_ids"]
    assert (whole != shown).sum() > 0.7 * (labels != -100).sum(), "the control: most are hidden"
    assert (labels[np.isin(whole, [101, 102])] == -100).all()
    assert corpus.label_names is None


def test_sharding_changes_only_files(real: Make, corpus_of: Build, bert: Tokenizer) -> None:
    """Rows keep their numbers, in a shard of a split too."""
    settings = MLM | {"slots": 32, "train_rows": 100, "validation_rows": 50}
    task = real("wikitext_raw", "validation", "test", settings=settings)
    whole = corpus_of(task, bert).split("train")
    sharded = corpus_of(task, bert, shard_rows=33).split("train")
    shards = [sharded.shard(index) for index in range(len(sharded.shards))]
    assert [len(shard) for shard in (whole, sharded, *shards)] == [100, 100, 33, 33, 33, 1]
    for name in ("labels", "lengths", "first_lengths", "probed_lengths", "rows"):
        assert (getattr(whole, name) == getattr(sharded, name)).all(), name
        in_shards = np.concatenate([getattr(shard, name) for shard in shards])
        assert (getattr(whole, name) == in_shards).all(), name
    mixed = [99, 3, 40, 33, 3]
    for name in TOKENS:
        assert (getattr(whole.tokens(mixed), name) == getattr(sharded.tokens(mixed), name)).all()
    assert (shards[1].labels_of([65, 33, 50]) == whole.labels_of([65, 33, 50])).all()
    with pytest.raises(IndexError, match="33 to 65"):
        shards[1].tokens([66])
    before = pa.total_allocated_bytes()
    ids = sharded.shard(0).tokens().input_ids
    assert pa.total_allocated_bytes() == before, "shards are mapped, not read"
    assert not ids.flags.writeable
    assert not ids.flags.owndata
    other_masks = corpus_of(task.model_copy(update={"mask_seed": 1}), bert).split("train")
    assert (whole.labels != other_masks.labels).any(), "the control: another seed"


def test_a_corpus_reads_only_its_files(make_task: Make, bert: Tokenizer, corpus_of: Build) -> None:
    """Whatever its description names, were it signed."""
    data = corpus_of(make_task(ROWS), bert).folder
    # Its data beside the metadata, where a new digest moves nothing.
    folder = shutil.copytree(data, data.with_name("flat") / "corpus")
    metadata = json.loads((data.parent / "metadata.json").read_text())
    own_file = [name for name in metadata["files"] if name != CORPUS]
    foreign_file = "train-00001.arrow"
    shutil.copy(folder / "train-00000.arrow", folder / foreign_file)
    description = json.loads((folder / CORPUS).read_text())
    description["shards"]["train"].append({"file": foreign_file, "rows": len(ROWS)})
    (folder / CORPUS).write_text(json.dumps(description))

    def loaded(*covered: str) -> int:
        files = {name: sha256_of_file(folder / name) for name in covered}
        (folder / "metadata.json").write_text(json.dumps(signed({**metadata, "files": files})))
        return len(load_corpus(folder).split("train"))

    with pytest.raises(ArtifactError, match=f"names no {CORPUS}"):
        loaded(*own_file)
    with pytest.raises(ArtifactError, match=r"train-00001\.arrow"):
        loaded(*own_file, CORPUS)
    assert loaded(*own_file, foreign_file, CORPUS) == 2 * len(ROWS), "the control"
