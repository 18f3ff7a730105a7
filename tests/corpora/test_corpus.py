"""Tokenised corpora: what is stored is what the tokenizer says, laid out, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papa.spec import TaskSpec
from tests.corpora.conftest import MLM, PAIR, WORDS, Build, Make


def rows_of(split: Any, values: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, split.offsets[1:-1])]


def test_real_text_is_the_tokenizers_own_in_slots(
    cola: TaskSpec, bert: Any, corpus_of: Build
) -> None:
    """Against a plain reading of the file and the tokenizer's own arrangement."""
    corpus = corpus_of(cola, bert)
    split = corpus.split("validation")
    source = [json.loads(line) for line in cola.source.validation.read_text().splitlines()]  # type: ignore[union-attr]
    assert len(split) == len(source) == 1043
    expected = bert([row["sentence"] for row in source])["input_ids"]
    assert rows_of(split, split.tokens().input_ids) == expected
    assert rows_of(split, split.tokens().slot_ids) == [
        [*range(len(ids) - 1), 63] for ids in expected
    ]
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


@pytest.mark.parametrize("kind", ["words", "mlm"])
def test_half_leaves_tasks_with_a_label_a_token_alone(
    make_task: Make, corpus_of: Build, bert: Any, kind: str
) -> None:
    rows = [{"tokens": ["the"] * 20, "pos_tags": ["DT"] * 20, "text": "the " * 20}]
    task = make_task(rows, **{"words": WORDS, "mlm": MLM}[kind])
    full, half = (
        corpus_of(task, bert, one_text_truncation=switch).split("train").tokens([0])
        for switch in ("full", "half")
    )
    assert full.slot_ids.tolist() == half.slot_ids.tolist() == list(range(16))
    assert full.input_ids.tolist() == half.input_ids.tolist()


def test_real_pairs_keep_to_their_halves(
    shared: Path, make_task: Make, corpus_of: Build, bert: Any
) -> None:
    folder = shared / "data" / "rte"
    corpus = corpus_of(
        make_task(folder / "train.jsonl", folder / "validation.jsonl", **PAIR, slots=64), bert
    )
    split = corpus.split("validation")
    cut = 0
    for ids, slots, types in zip(
        rows_of(split, split.tokens().input_ids),
        rows_of(split, split.tokens().slot_ids),
        rows_of(split, split.tokens().token_type_ids),
        strict=True,
    ):
        assert ids[0] == 101
        assert ids[slots.index(32)] == ids[-1] == 102
        assert slots[-1] == 63
        assert ids.count(102) == 2
        assert types == [int(slot > 32) for slot in slots]
        cut += slots.count(31) + slots.count(62) > 0
    assert 0 < corpus.metadata["texts_cut"]["validation"] <= cut < len(split)


def test_segments_that_stay_are_the_tokenizers_own_where_a_first_text_is_cut(
    make_task: Make, corpus_of: Build, bert: Any
) -> None:
    """The reference is the tokenizer's own output for the whole pair, cut and padded to S, read at
    the slots.
    """
    first, second = "the doll came loose and ran " * 4, "it moved"
    task = make_task([{"sentence1": first, "sentence2": second, "label": 0}], **PAIR)
    own = bert(first, second, padding="max_length", truncation=True, max_length=16)[
        "token_type_ids"
    ]
    stay, follow = (
        corpus_of(task, bert, segment_ids=switch).split("train").tokens([0])
        for switch in ("stay", "follow")
    )
    assert stay.slot_ids.tolist() == [*range(8), 8, 9, 10, 15]
    assert stay.token_type_ids.tolist() == [own[slot] for slot in stay.slot_ids]
    assert stay.token_type_ids.tolist() != follow.token_type_ids.tolist(), "the control"


def test_labels_of_words_sit_on_their_first_sub_tokens(
    shared: Path, make_task: Make, corpus_of: Build, bert: Any
) -> None:
    """The tokenizer's own alignment of words is the reference; no row is cut at 512 slots."""
    folder = shared / "data" / "ud_ewt"
    task = make_task(
        folder / "train.jsonl", folder / "validation.jsonl", **WORDS, slots=512, train_rows=500
    )
    corpus = corpus_of(task, bert)
    split = corpus.split("validation")
    assert corpus.label_names is not None
    lines = (folder / "validation.jsonl").read_text().splitlines()
    ids_of_rows = rows_of(split, split.tokens().input_ids)
    for line, ids, labels in zip(lines, ids_of_rows, rows_of(split, split.labels), strict=True):
        row = json.loads(line)
        own = bert(row["tokens"], is_split_into_words=True)
        assert own["input_ids"] == ids
        words = own.word_ids(0)
        firsts = [
            word is not None and word != before
            for word, before in zip(words, [None, *words], strict=False)
        ]
        expected = [
            corpus.label_names.index(row["pos_tags"][word]) if first else -100
            for word, first in zip(words, firsts, strict=True)
        ]
        assert labels == expected
    assert corpus.metadata["words_cut"] == {"train": 0, "validation": 0}


def test_words_cut_off_are_counted(make_task: Make, corpus_of: Build, bert: Any) -> None:
    rows = [
        {"tokens": ["the"] * 20, "pos_tags": ["DT"] * 20},
        {"tokens": ["the"], "pos_tags": ["DT"]},
    ]
    corpus = corpus_of(make_task(rows, **WORDS), bert)
    assert corpus.metadata["words_cut"] == {"train": 6, "validation": 6}
    assert (corpus.split("train").labels == 0).sum() == 15


def test_masked_text_and_labels_restore_the_text(
    shared: Path, make_task: Make, corpus_of: Build, bert: Any
) -> None:
    folder = shared / "data" / "wikitext_raw"
    task = make_task(
        folder / "validation.txt", folder / "test.txt", **MLM, slots=64, train_rows=200
    )
    corpus = corpus_of(task, bert)
    split = corpus.split("validation")
    labels, shown = split.labels, split.tokens().input_ids
    texts = [
        line.strip() for line in (folder / "test.txt").read_text().splitlines() if line.strip()
    ]
    expected = bert(texts, truncation=True, max_length=64)["input_ids"]
    restored = np.where(labels == -100, shown, labels)
    assert rows_of(split, restored) == expected
    text = ~np.isin(restored, [101, 102])
    assert 0.145 < (labels[text] != -100).mean() < 0.16
    assert (restored != shown).sum() > 0.7 * (labels != -100).sum(), "the control: most are hidden"
    assert (labels[~text] == -100).all()
    assert corpus.label_names is None


def test_roberta_like_tokenizers_lay_out_every_kind(
    make_task: Make, corpus_of: Build, roberta: Any
) -> None:
    cls, sep = roberta.cls_token_id, roberta.sep_token_id
    rows = [{"sentence1": "the facts", "sentence2": "a doll", "label": 0}]
    pair = corpus_of(make_task(rows, **PAIR, slots=32), roberta)
    split = pair.split("train")
    assert split.tokens().input_ids.tolist() == roberta("the facts", "a doll")["input_ids"]
    tokens = split.tokens()
    middle = tokens.input_ids[(tokens.slot_ids == 16) | (tokens.slot_ids == 17)]
    assert middle.tolist() == [sep, sep]
    words = corpus_of(
        make_task([{"tokens": ["facts", "loose"], "pos_tags": ["N", "A"]}], **WORDS), roberta
    )
    expected = roberta(" facts loose", add_special_tokens=False)["input_ids"]
    assert words.split("train").tokens().input_ids.tolist() == [cls, *expected, sep]
    assert [label for label in words.split("train").labels.tolist() if label != -100] == [1, 0]
