"""Text to token ids: literal special tokens, words and masks."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from papa.text.tokens import masked, special_tokens_of, tokens_of_texts, tokens_of_words


@pytest.mark.parametrize(
    ("name", "text"),
    [("bert", "press [SEP] or [CLS][PAD] [MASK]"), ("roberta", "press </s> or <s><pad> <mask>")],
)
def test_special_tokens_written_in_the_text_are_text(
    name: str, text: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    special_tokens = special_tokens_of(tokenizer)
    ids, long, empty = tokens_of_texts(tokenizer, special_tokens, [text, "word " * 900, ""])
    assert not {*ids} & special_tokens.reserved
    assert special_tokens.unknown not in ids
    assert len(long) >= 900
    assert empty == []
    # The control: without care the same text does become special tokens.
    careless = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert {*careless} & special_tokens.reserved


def test_a_piece_of_the_vocabulary_that_is_special_becomes_unknown() -> None:
    """A Unigram vocabulary holds '</s>' as a piece: telling the tokenizer to split it is not
    enough.
    """
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁", -2.0), ("a", -3.0), ("▁b", -3.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    named = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **named)
    special_tokens = special_tokens_of(tokenizer)
    split = tokenizer("a </s> b", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert special_tokens.sep in split, "the control: the tokenizer alone yields the separator"
    (ids,) = tokens_of_texts(tokenizer, special_tokens, ["a </s> b"])
    assert special_tokens.sep not in ids
    assert special_tokens.unknown in ids


@pytest.mark.parametrize(("name", "before"), [("bert", ""), ("roberta", " ")])
def test_words_are_tokenised_as_inside_a_sentence(
    name: str, before: str, request: pytest.FixtureRequest
) -> None:
    """A byte-level tokenizer marks the space before a word, that of a sentence's first word too."""
    tokenizer = request.getfixturevalue(name)
    rows = [["murkier", "facts", "murkier"], [], ["crazier"]]
    tokens, numbers = tokens_of_words(tokenizer, special_tokens_of(tokenizer), rows)
    sentences = [before * bool(row) + " ".join(row) for row in rows]
    assert tokens == tokenizer(sentences, add_special_tokens=False)["input_ids"]
    assert [sorted({*row}) for row in numbers] == [[0, 1, 2], [], [0]]
    assert all(row == sorted(row) for row in numbers)
    assert [len(row) for row in numbers] == [len(row) for row in tokens]


def test_a_word_that_yields_nothing_becomes_unknown(bert: Any) -> None:
    words = [["the", "\u200b", "doll", " "]]
    (tokens,), (numbers,) = tokens_of_words(bert, special_tokens_of(bert), words)
    assert tokens == [1996, bert.unk_token_id, 10658, bert.unk_token_id]
    assert numbers == [0, 1, 2, 3]


def test_masking_hides_fifteen_percent_as_bert_does(bert: Any) -> None:
    special_tokens = special_tokens_of(bert)
    texts = np.random.default_rng(0).integers(1000, 30000, (400, 100))
    shown, labels = map(np.array, masked(texts.tolist(), special_tokens, 3, 0, 0))
    chosen = labels != -100
    assert chosen.sum(1).tolist() == [15] * 400
    assert (labels[chosen] == texts[chosen]).all()
    assert (shown[~chosen] == texts[~chosen]).all()
    assert 0.78 < (shown[chosen] == special_tokens.mask).mean() < 0.82
    assert 0.085 < (shown[chosen] == texts[chosen]).mean() < 0.115
    strange = list(special_tokens.reserved - {special_tokens.mask})
    assert not np.isin(shown[chosen], strange).any()
    _, short = masked([[2000], [], [2001, 2002]], special_tokens, 0, 0, 0)
    assert short[:2] == [[2000], []]
    assert sum(label != -100 for label in chain(*short)) == 2, "at least one of a row with text"


def test_masking_depends_on_seed_split_and_row_alone(bert: Any) -> None:
    special_tokens, rows = special_tokens_of(bert), [list(range(1000, 1040))] * 6
    whole = masked(rows, special_tokens, 3, 0, 0)[1]
    assert masked(rows[4:], special_tokens, 3, 0, 4)[1] == whole[4:]
    assert whole[0] != whole[1], "rows are masked each in its own way"
    assert masked(rows, special_tokens, 4, 0, 0)[1] != whole
    assert masked(rows, special_tokens, 3, 1, 0)[1] != whole
