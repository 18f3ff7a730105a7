"""Tokenised corpora: what is stored is what the tokenizer says, laid out, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from papa.spec import TaskSpec
from tests.corpora.conftest import COLA, MLM, UD, WORDS, Build, Make


def rows_of(split: Any, values: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, split.tokens().offsets[1:-1])]


def source_of(task: TaskSpec) -> list[Any]:
    return [json.loads(line) for line in task.source.validation.read_text().splitlines()]  # type: ignore[union-attr]


def test_real_text_is_the_tokenizers_own_in_slots(real: Make, bert: Any, corpus_of: Build) -> None:
    """Against a plain reading of the file and the tokenizer's own arrangement."""
    cola = real("cola", **COLA)
    corpus, source = corpus_of(cola, bert), source_of(cola)
    split, tokens = corpus.split("validation"), corpus.split("validation").tokens()
    assert len(split) == len(source) == 1043
    expected = bert([row["sentence"] for row in source])["input_ids"]
    assert rows_of(split, tokens.input_ids) == expected
    assert rows_of(split, tokens.slot_ids) == [[*range(len(ids) - 1), 63] for ids in expected]
    assert split.labels.tolist() == [row["label"] for row in source]
    assert split.lengths.tolist() == [len(ids) for ids in expected]
    assert corpus.label_names == ("0", "1")
    assert corpus.metadata["tokens"]["validation"] == sum(map(len, expected))
    assert corpus.metadata["texts_cut"] == {"train": 0, "validation": 0}


@pytest.mark.parametrize(("truncation", "kept"), [("full", 14), ("half", 7)])
def test_long_texts_are_cut_and_counted(
    make_task: Make, corpus_of: Build, bert: Any, truncation: str, kept: int
) -> None:
    task = make_task([{"text": "word " * 40, "label": 0}, {"text": "", "label": 1}])
    corpus = corpus_of(task, bert, one_text_truncation=truncation)
    split = corpus.split("train")
    assert split.lengths.tolist() == [kept + 2, 2]
    assert split.tokens().slot_ids.tolist() == [*range(kept + 1), 15, 0, 15]
    assert corpus.metadata["texts_cut"] == {"train": 1, "validation": 1}
    task = make_task([{"tokens": ["the"] * 20, "tags": ["DT"] * 20}], **WORDS)
    corpus = corpus_of(task, bert, one_text_truncation=truncation)
    assert corpus.metadata["words_cut"] == {"train": 6, "validation": 6}, "whole for words"


def test_labels_of_words_sit_on_their_first_sub_tokens(
    real: Make, corpus_of: Build, bert: Any
) -> None:
    """The tokenizer's own alignment of words is the reference; no row is cut at 512 slots."""
    task = real("ud_ewt", **UD, slots=512, train_rows=500)
    corpus = corpus_of(task, bert)
    split, names = corpus.split("validation"), corpus.label_names
    assert names is not None
    ids_of_rows = rows_of(split, split.tokens().input_ids)
    for row, ids, labels in zip(
        source_of(task), ids_of_rows, rows_of(split, split.labels), strict=True
    ):
        own = bert(row["tokens"], is_split_into_words=True)
        assert own["input_ids"] == ids
        words = own.word_ids(0)
        assert labels == [
            -100 if word in (None, before) else names.index(row["pos_tags"][word])
            for word, before in zip(words, [None, *words], strict=False)
        ]
    assert corpus.metadata["words_cut"] == {"train": 0, "validation": 0}


def test_masked_text_and_labels_restore_the_text(real: Make, corpus_of: Build, bert: Any) -> None:
    task = real("wikitext_raw", "validation", "test", **MLM, slots=64, train_rows=200)
    corpus = corpus_of(task, bert)
    split = corpus.split("validation")
    labels, shown = split.labels, split.tokens().input_ids
    lines = task.source.validation.read_text().splitlines()  # type: ignore[union-attr]
    texts = [line.strip() for line in lines if line.strip()]
    restored = np.where(labels == -100, shown, labels)
    assert rows_of(split, restored) == bert(texts, truncation=True, max_length=64)["input_ids"]
    text = ~np.isin(restored, [101, 102])
    assert 0.145 < (labels[text] != -100).mean() < 0.16
    assert (restored != shown).sum() > 0.7 * (labels != -100).sum(), "the control: most are hidden"
    assert (labels[~text] == -100).all()
    assert corpus.label_names is None
