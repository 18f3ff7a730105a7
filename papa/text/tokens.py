"""Text and words to token ids; special tokens written out in the text are text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from papa.errors import EncoderError
from papa.spec import TaskKind

if TYPE_CHECKING:  # reading text needs no transformers until a tokenizer is loaded
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""The label of a token that is not scored."""
NO_TOKEN = -1
"""The id of a special token that the tokenizer lacks, or that a decoder's texts lack."""
MASKED_SHARE = 0.15
"""The share of a row's text tokens that a masked language model must restore (BERT's, section 3.1
of arXiv:1810.04805); at least one token."""


def tokens_of_texts(
    tokenizer: PreTrainedTokenizerBase, special_tokens: SpecialTokens, texts: Sequence[str]
) -> list[list[int]]:
    """Return the token ids of each text, not truncated and without special tokens."""
    rows = tokenizer(
        list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False
    )["input_ids"]
    # A vocabulary (Unigram) may hold "</s>" as a piece: such text becomes unknown, never special.
    reserved = special_tokens.reserved
    for row in rows:
        if not reserved.isdisjoint(row):
            row[:] = [_needed(special_tokens.unknown) if id in reserved else id for id in row]
    return rows


def tokens_of_words(
    tokenizer: PreTrainedTokenizerBase,
    special_tokens: SpecialTokens,
    sentences: Sequence[Sequence[str]],
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of each row's words, not truncated, and the number in the row of each
    token's word. A word that yields no token becomes the unknown token.
    """
    words = list(dict.fromkeys(chain.from_iterable(sentences)))
    spelled = [special_tokens.prefix + word.strip() for word in words]
    pieces = tokens_of_texts(tokenizer, special_tokens, spelled) if words else []
    unknown = special_tokens.unknown
    tokens_of = {word: ids or [_needed(unknown)] for word, ids in zip(words, pieces, strict=True)}
    tokens = [[token for word in row for token in tokens_of[word]] for row in sentences]
    word_numbers = [
        [number for number, word in enumerate(row) for _ in tokens_of[word]] for row in sentences
    ]
    return tokens, word_numbers


def masked(
    texts: Sequence[Sequence[int]],
    special_tokens: SpecialTokens,
    seed: int,
    split: int,
    first_row: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """Mask tokens as in BERT's training; return the input ids, and the labels (-100 if not scored).

    80 % of the chosen tokens become [MASK], 10 % a random token and 10 % stay. The choice depends
    on ``seed``, ``split`` and the row's number alone, so shards of any size give the same ids.
    """
    mask = _needed(special_tokens.mask, "mask")
    ordinary = np.setdiff1d(np.arange(special_tokens.vocabulary), list(special_tokens.reserved))
    masked_texts = []
    labels = []
    for row, text in enumerate(texts, start=first_row):
        ids = np.array(text, np.int64)
        text_labels = np.full(len(text), IGNORED)
        if text:
            generator = np.random.default_rng((seed, split, row))
            count = max(1, round(MASKED_SHARE * len(text)))
            chosen = generator.choice(len(text), count, replace=False)
            draw = generator.random(count)
            # [MASK] below 0.8, a random token from 0.8 to 0.9, the token itself above.
            replacement = np.where(draw < 0.8, mask, generator.choice(ordinary, count))
            text_labels[chosen] = ids[chosen]
            ids[chosen] = np.where(draw < 0.9, replacement, ids[chosen])
        masked_texts.append(ids.tolist())
        labels.append(text_labels.tolist())
    return masked_texts, labels


def _needed(token: int, role: str = "unknown") -> int:
    if token == NO_TOKEN:
        raise EncoderError(
            f"the tokenizer has no {role} token, which is needed: use another encoder"
        )
    return token


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer, and what else the layout and masking need, as token ids.

    Attributes:
        between: separators between two texts: 1 for BERT-like tokenizers, 2 for RoBERTa-like ones.
        segments: ids of the first text (with [CLS]), of separators between, and of the second.
        reserved: ids that no text may yield.
        vocabulary: how many token ids there are.
        prefix: what to put before a word to tokenise it as inside a sentence, such as a space.
    """

    cls: int
    sep: int
    pad: int
    between: int = 0
    segments: tuple[int, int, int] = (0, 0, 0)
    reserved: frozenset[int] = frozenset()
    vocabulary: int = 0
    unknown: int = NO_TOKEN
    mask: int = NO_TOKEN
    prefix: str = ""


def special_tokens_of(tokenizer: PreTrainedTokenizerBase, kind: TaskKind = "text") -> SpecialTokens:
    """Learn the special tokens from how a tokenizer frames texts itself."""

    def token_id(role: str) -> int:
        id = getattr(tokenizer, f"{role}_token_id")
        return NO_TOKEN if id is None else int(id)

    cls = token_id("cls")
    sep = token_id("sep")
    pad = token_id("pad")
    mask = token_id("mask")
    unknown = token_id("unk")
    special = frozenset(tokenizer.all_special_ids) - {unknown}
    special_tokens = SpecialTokens(
        cls, sep, pad, reserved=special, vocabulary=len(tokenizer), unknown=unknown, mask=mask
    )
    if kind == "causal":
        start = token_id("bos")
        adds_start = tokenizer("")["input_ids"][:1] == [start]
        return replace(
            special_tokens,
            cls=start if adds_start else NO_TOKEN,
            sep=NO_TOKEN,
            # Decoders without a padding token: padding is masked, so any id serves.
            pad=max(pad, 0),
        )
    pair = tokenizer("one", "two")
    ids = pair["input_ids"]
    text_numbers = pair.sequence_ids(0)
    first = np.flatnonzero([number == 0 for number in text_numbers])
    second = np.flatnonzero([number == 1 for number in text_numbers])
    between = ids[first[-1] + 1 : second[0]]
    framed = ids[: first[0]] == [cls] and ids[second[-1] + 1 :] == [sep] and {*between} == {sep}
    if not framed or len(between) > 2 or pad == NO_TOKEN:
        framing = " ".join(tokenizer.convert_ids_to_tokens(ids))
        raise EncoderError(
            f"the tokenizer of '{tokenizer.name_or_path}' frames two texts as '{framing}', not "
            "as [CLS] one [SEP] two [SEP] [PAD], with one or two separators between: use an "
            "encoder such as BERT or RoBERTa"
        )
    types = pair.get("token_type_ids") or [0] * len(ids)

    def plain(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    # Byte-level tokenizers give a word inside a sentence other tokens than one at its start.
    word = plain("the")
    repeated = plain("the the")
    spaced = repeated != word * 2 and repeated == word + plain(" the")
    return replace(
        special_tokens,
        between=len(between),
        segments=(types[first[0]], types[first[-1] + 1], types[second[0]]),
        reserved=special | {cls, sep, pad, mask} - {NO_TOKEN},
        prefix=" " if spaced else "",
    )


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int, encoder: str) -> None:
    """Raise an error if a tokenizer has ids for which an encoder has no embeddings."""
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise EncoderError(
            f"the tokenizer of '{encoder}' has token ids up to {highest}, but the model has "
            f"embeddings for {rows} tokens: give the tokenizer that belongs to the model"
        )
