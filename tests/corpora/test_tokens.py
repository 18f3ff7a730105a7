"""Text to token ids: literal special tokens, words and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from papa.corpora.ragged import Ragged
from papa.corpora.tokens import IGNORED, masked, special_tokens_of, tokens_of_texts, tokens_of_words
from papa.errors import EncoderError


@pytest.mark.parametrize(
    ("name", "text"),
    [("bert", "press [SEP] or [CLS][PAD] [MASK]"), ("roberta", "press </s> or <s><pad> <mask>")],
)
def test_special_tokens_written_in_the_text_are_text(
    name: str, text: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    special_tokens = special_tokens_of(tokenizer)
    ids = tokens_of_texts(tokenizer, special_tokens, [text]).values
    assert not set(ids.tolist()) & special_tokens.reserved
    assert special_tokens.unknown not in ids
    # The control: without care the same text does become special tokens.
    careless = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert set(careless) & special_tokens.reserved


def test_a_piece_of_the_vocabulary_that_is_special_becomes_unknown() -> None:
    """A Unigram vocabulary holds '</s>' as a piece: telling the tokenizer to split it is not
    enough.
    """
    pieces = [
        ("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("a", -3.0),
        ("▁b", -3.0),
    ]  # fmt: skip
    backend = Tokenizer(models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    special_tokens = special_tokens_of(tokenizer)
    split = tokenizer("a </s> b", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert special_tokens.sep in split, "the control: the tokenizer alone yields the separator"
    ids = tokens_of_texts(tokenizer, special_tokens, ["a </s> b"]).values.tolist()
    assert special_tokens.sep not in ids
    assert special_tokens.unknown in ids


def test_a_long_text_comes_back_whole(bert: Any) -> None:
    tokens = tokens_of_texts(bert, special_tokens_of(bert), ["word " * 900, ""])
    assert tokens.lengths.tolist() == [900, 0]


def word_lists(rows: list[list[str]]) -> pa.LargeListArray:
    return pa.array(rows, pa.large_list(pa.large_string()))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_words_are_tokenised_as_inside_a_sentence(
    name: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    special_tokens = special_tokens_of(tokenizer)
    rows = [["murkier", "facts", "murkier"], [], ["crazier"]]
    tokens, firsts = tokens_of_words(tokenizer, special_tokens, word_lists(rows))
    # A byte-level tokenizer marks the space before a word; the first word of a sentence gets one
    # too.
    sentences = [
        " ".join(row) if name == "bert" else "".join(f" {word}" for word in row) for row in rows
    ]
    expected = [
        tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences
    ]
    assert tokens.values.tolist() == [token for row in expected for token in row]
    assert tokens.lengths.tolist() == [len(row) for row in expected]
    assert [number for number in firsts.values.tolist() if number >= 0] == [0, 1, 2, 3]
    assert firsts.lengths.tolist() == tokens.lengths.tolist()


def test_a_word_that_yields_nothing_becomes_unknown(bert: Any) -> None:
    tokens, firsts = tokens_of_words(
        bert, special_tokens_of(bert), word_lists([["the", "\u200b", "doll", " "]])
    )
    assert tokens.values.tolist() == [1996, bert.unk_token_id, 10658, bert.unk_token_id]
    assert firsts.values.tolist() == [0, 1, 2, 3]


def test_masking_hides_fifteen_percent_as_bert_does(bert: Any) -> None:
    special_tokens = special_tokens_of(bert)
    rows = np.random.default_rng(0).integers(1000, 30000, (400, 100), dtype=np.int32)
    tokens = Ragged.of(rows.tolist())
    shown, labels = masked(tokens, special_tokens, seed=3, split=0, first_row=0)
    chosen = labels != IGNORED
    assert chosen.reshape(400, 100).sum(1).tolist() == [15] * 400
    assert (labels[chosen] == tokens.values[chosen]).all()
    assert (shown.values[~chosen] == tokens.values[~chosen]).all()
    hidden = (shown.values[chosen] == special_tokens.mask).mean()
    kept = (shown.values[chosen] == tokens.values[chosen]).mean()
    assert 0.78 < hidden < 0.82
    assert 0.085 < kept < 0.115
    assert not np.isin(
        shown.values[chosen], list(special_tokens.reserved - {special_tokens.mask})
    ).any()


def test_masking_depends_on_seed_split_and_row_alone(bert: Any) -> None:
    special_tokens = special_tokens_of(bert)
    rows = [list(range(1000, 1040))] * 6
    whole = masked(Ragged.of(rows), special_tokens, seed=3, split=0, first_row=0)[1].reshape(6, 40)
    tail = masked(Ragged.of(rows[4:]), special_tokens, seed=3, split=0, first_row=4)[1].reshape(
        2, 40
    )
    assert (whole[4:] == tail).all()
    assert (whole[0] != whole[1]).any(), "rows are masked each in its own way"
    for other in ({"seed": 4, "split": 0}, {"seed": 3, "split": 1}):
        assert (
            masked(Ragged.of(rows), special_tokens, **other, first_row=0)[1].reshape(6, 40) != whole
        ).any()


def test_short_and_empty_rows_are_masked_too(bert: Any) -> None:
    labels = masked(Ragged.of([[2000], [], [2001, 2002]]), special_tokens_of(bert), 0, 0, 0)[1]
    assert (labels != IGNORED).tolist()[0]
    assert (labels != IGNORED).sum() == 2


def test_masking_needs_a_mask_token(bert: Any) -> None:
    from dataclasses import replace

    with pytest.raises(EncoderError, match="no mask token"):
        masked(Ragged.of([[2000]]), replace(special_tokens_of(bert), mask=None), 0, 0, 0)
