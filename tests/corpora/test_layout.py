"""The arrangement in slots, of both families of tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from papa.corpora.layout import arrange_one, arrange_pair, pair_capacity, text_capacity
from papa.corpora.ragged import PackedTokens, Ragged
from papa.corpora.tokens import special_tokens_of, tokens_of_texts
from papa.errors import EncoderError
from papa.spec import LayoutSpec


def ragged(*rows: Sequence[int]) -> Ragged:
    return Ragged.of(rows)


def test_one_text_stands_from_slot_one_and_ends_in_the_last(bert: Any) -> None:
    special_tokens = special_tokens_of(bert)
    arranged = arrange_one(ragged([11, 12, 13], [], [21]), special_tokens, 8)
    assert arranged.input_ids.tolist() == [101, 11, 12, 13, 102, 101, 102, 101, 21, 102]
    assert arranged.slot_ids.tolist() == [0, 1, 2, 3, 7, 0, 7, 0, 1, 7]
    assert arranged.lengths.tolist() == [5, 2, 3]
    assert not arranged.token_type_ids.any()
    assert arranged.first_lengths.tolist() == [3, 0, 1]


def test_two_texts_keep_to_their_halves(bert: Any) -> None:
    special_tokens = special_tokens_of(bert)
    arranged = arrange_pair(
        ragged([11, 12], []), ragged([21], [31, 32]), special_tokens, "follow", 12
    )
    assert arranged.input_ids.tolist() == [101, 11, 12, 102, 21, 102, 101, 102, 31, 32, 102]
    assert arranged.slot_ids.tolist() == [0, 1, 2, 6, 7, 11, 0, 6, 7, 8, 11]
    # The tokenizer counts the separator between to the first text, the last one to the second.
    assert arranged.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1]


def test_segments_of_pairs_of_any_length(bert: Any) -> None:
    """Against the truncation of the Python tokenizers, spelled out token by token, for all lengths
    up to S.
    """
    slots = 12
    for first in range(slots + 1):
        for second in range(slots + 1):
            left = [first, second]
            while sum(left) > slots - 3:
                left[0 if left[0] > left[1] else 1] -= 1
            vector = [0] * (left[0] + 2) + [1] * (left[1] + 1)
            vector += [0] * (slots - len(vector))
            pair = ragged(range(100, 100 + first)), ragged(range(200, 200 + second))
            stay = arrange_pair(*pair, special_tokens_of(bert), "stay", slots)
            assert stay.token_type_ids.tolist() == [vector[slot] for slot in stay.slot_ids], (
                first,
                second,
            )


def test_roberta_like_pairs_have_two_separators_in_the_middle(roberta: Any) -> None:
    special_tokens = special_tokens_of(roberta)
    assert special_tokens.between == 2
    arranged = arrange_pair(ragged([11, 12]), ragged([21]), special_tokens, "follow", 12)
    cls, sep = roberta.cls_token_id, roberta.sep_token_id
    assert arranged.input_ids.tolist() == [cls, 11, 12, sep, sep, 21, sep]
    assert arranged.slot_ids.tolist() == [0, 1, 2, 6, 7, 8, 11]
    assert not arranged.token_type_ids.any(), "the tokenizer gives no segments"


def test_too_few_slots_for_a_pair_are_refused(bert: Any, roberta: Any) -> None:
    assert pair_capacity(special_tokens_of(bert), 6) == (2, 1)
    with pytest.raises(EncoderError, match=r"slots 4 leave no room.*slots to 6 or more"):
        pair_capacity(special_tokens_of(bert), 4)
    assert pair_capacity(special_tokens_of(roberta), 8) == (3, 1)
    with pytest.raises(EncoderError, match="slots to 8 or more"):
        pair_capacity(special_tokens_of(roberta), 6)


def test_spread_puts_values_on_text_tokens_alone(bert: Any) -> None:
    arranged = arrange_one(ragged([11, 12], [21]), special_tokens_of(bert), 8)
    assert arranged.spread(np.array([1, 2, 3]), -100).tolist() == [-100, 1, 2, -100, -100, 3, -100]


def plain_tokenizer(**special_tokens: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(
        models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **special_tokens)


def test_a_tokenizer_without_a_needed_token_is_refused() -> None:
    with pytest.raises(EncoderError, match="no cls token"):
        special_tokens_of(plain_tokenizer(pad_token="[PAD]"))
    with pytest.raises(EncoderError, match="no pad token"):
        special_tokens_of(plain_tokenizer(cls_token="[CLS]", sep_token="[SEP]"))


def test_a_tokenizer_that_frames_texts_otherwise_is_refused() -> None:
    """It has all tokens but adds none of them."""
    with pytest.raises(EncoderError, match="frames two texts as"):
        special_tokens_of(plain_tokenizer(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]"))


def test_the_authors_layout_is_met(shared: Path, bert: Any) -> None:
    """800 inputs as the authors' code lays them out, from their text: cut at half the slots, [SEP]
    last.
    """
    golden = load_file(shared / "golden" / "minilm_cola_s64.safetensors")
    ids, mask = golden["corpus.input_ids"], golden["corpus.attention_mask"].astype(bool)
    limit = text_capacity(LayoutSpec(one_text_truncation="half"), "text", 64)
    rows = [row[seen][1:-1].tolist() for row, seen in zip(ids, mask, strict=True)]
    # What was cut off is not stored; a full row may go on with anything.
    texts = [bert.decode(row) + " and so on" * (len(row) == limit) for row in rows]
    tokens = tokens_of_texts(bert, special_tokens_of(bert), texts)
    assert (tokens.lengths > limit).any()
    assert dense(arrange_one(tokens.cut(limit), special_tokens_of(bert), 64)) == (
        ids.tolist(),
        mask.tolist(),
    )
    paper = arrange_one(
        tokens.cut(text_capacity(LayoutSpec(), "text", 64)), special_tokens_of(bert), 64
    )
    assert dense(paper)[0] != ids.tolist(), "the control: the paper's layout keeps more"


def dense(arranged: PackedTokens) -> tuple[list[list[int]], list[list[bool]]]:
    """Ids and mask of all rows at all 64 slots."""
    ids = np.zeros((len(arranged.lengths), 64), np.int64)
    mask = np.zeros_like(ids, dtype=bool)
    where = np.repeat(np.arange(len(ids)), arranged.lengths), arranged.slot_ids
    ids[where], mask[where] = arranged.input_ids, True
    return ids.tolist(), mask.tolist()
