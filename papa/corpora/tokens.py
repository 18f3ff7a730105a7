"""Text and words to token ids. Special tokens written out in the text are text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from papa.corpora.ragged import Ragged
from papa.corpora.specials import Specials
from papa.errors import EncoderError

IGNORED = -100
"""The label of a token that is not scored."""
MASKED_SHARE = 0.15
"""Of a row's text tokens, how many a masked language model must restore (at least one)."""


def tokens_of_texts(tokenizer: Any, specials: Specials, texts: Sequence[str]) -> Ragged:
    """Token ids of each text, uncut and without special tokens."""
    ids = tokenizer(
        list(texts),
        add_special_tokens=False,
        split_special_tokens=True,
        truncation=False,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["input_ids"]
    tokens = Ragged.of(ids)
    # Some vocabularies (Unigram) hold "</s>" as a piece too: such text becomes unknown, never special.
    special = np.isin(tokens.values, list(specials.reserved))
    if special.any():
        tokens.values[special] = _unknown(specials)
    return tokens


def tokens_of_words(tokenizer: Any, specials: Specials, words: pa.LargeListArray) -> tuple[Ragged, Ragged]:
    """Sub-tokens of each row's words, uncut; and for a word's first sub-token the word's number, else -1.

    Words are numbered within the whole array. Each distinct word is tokenised once, alone, as it would be
    inside a sentence; a word that yields nothing becomes the unknown token.
    """
    distinct = words.flatten().dictionary_encode()
    spelled = [specials.prefix + word.strip() for word in distinct.dictionary.to_pylist()]
    vocabulary = tokens_of_texts(tokenizer, specials, spelled) if spelled else Ragged.of([])
    empty = vocabulary.lengths == 0
    if empty.any():
        lengths = np.maximum(vocabulary.lengths, 1)
        values = np.full(int(lengths.sum()), _unknown(specials), np.int32)
        values[np.repeat(~empty, lengths)] = vocabulary.values
        vocabulary = Ragged(values, lengths)
    tokens = vocabulary.take(distinct.indices.to_numpy(zero_copy_only=False))
    number = np.repeat(np.arange(len(tokens.lengths)), tokens.lengths)
    firsts = Ragged(np.where(tokens.places == 0, number, -1), tokens.lengths)
    counts = words.value_lengths().to_numpy(zero_copy_only=False)
    return tokens.joined(counts), firsts.joined(counts)


def masked(tokens: Ragged, specials: Specials, seed: int, split: int, first_row: int) -> tuple[Ragged, np.ndarray]:
    """Hide tokens as BERT was trained: the ids to show, and the labels [tokens] to restore (-100 elsewhere).

    Of each row 15 % of the tokens are chosen, at least one; 80 % of them become [MASK], 10 % a random token
    and 10 % stay. The choice depends on the seed, the split and the row's number alone, not on how rows are
    sharded.

    Raises:
        EncoderError: the tokenizer has no mask token.
    """
    mask = check_mask(specials)
    ordinary = np.setdiff1d(np.arange(specials.vocabulary), list(specials.reserved))
    shown, labels = tokens.values.copy(), np.full(len(tokens.values), IGNORED, np.int64)
    offsets = tokens.offsets
    for row, (start, length) in enumerate(zip(offsets[:-1], tokens.lengths, strict=True), start=first_row):
        if length == 0:
            continue
        generator = np.random.default_rng((seed, split, row))
        count = max(1, round(MASKED_SHARE * int(length)))
        chosen = start + generator.choice(length, count, replace=False)
        fate = generator.random(count)
        replacement = np.where(fate < 0.8, mask, generator.choice(ordinary, count))
        labels[chosen] = tokens.values[chosen]
        shown[chosen] = np.where(fate < 0.9, replacement, tokens.values[chosen])
    return Ragged(shown, tokens.lengths), labels


def check_mask(specials: Specials) -> int:
    """The mask token's id.

    Raises:
        EncoderError: the tokenizer has no mask token.
    """
    if specials.mask is None:
        raise EncoderError("the tokenizer has no mask token, which a masked language model needs: use another encoder")
    return specials.mask


def _unknown(specials: Specials) -> int:
    if specials.unknown is None:
        raise EncoderError("the tokenizer has no unknown token for text that it cannot spell: use another encoder")
    return specials.unknown
