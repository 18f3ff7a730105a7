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
NOTHING = -1
"""In place of a special token that a decoder's texts have not."""
MASKED_SHARE = 0.15
"""Of a row's text tokens, how many a masked language model must restore (at least one)."""


def tokens_of_texts(
    tokenizer: PreTrainedTokenizerBase, special_tokens: SpecialTokens, texts: Sequence[str]
) -> list[list[int]]:
    """Token ids of each text, uncut and without special tokens."""
    how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    rows = tokenizer(list(texts), **how)["input_ids"]
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
    """Sub-tokens of each row's words, uncut, and the number in the row of each one's word; a word
    that yields nothing becomes the unknown token.
    """
    words = list(dict.fromkeys(chain.from_iterable(sentences)))
    spelled = [special_tokens.prefix + word.strip() for word in words]
    pieces = tokens_of_texts(tokenizer, special_tokens, spelled) if words else []
    unknown = special_tokens.unknown
    spelling = {word: ids or [_needed(unknown)] for word, ids in zip(words, pieces, strict=True)}
    tokens = [[token for word in row for token in spelling[word]] for row in sentences]
    numbers = [
        [number for number, word in enumerate(row) for _ in spelling[word]] for row in sentences
    ]
    return tokens, numbers


def masked(
    texts: Sequence[Sequence[int]],
    special_tokens: SpecialTokens,
    seed: int,
    split: int,
    first_row: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """Hide tokens as BERT was trained: the ids to show, and the labels to restore (-100 elsewhere).

    80 % of the chosen tokens become [MASK], 10 % a random token and 10 % stay, by the seed, the
    split and the row's number alone.
    """
    mask = _needed(special_tokens.mask, "mask")
    ordinary = np.setdiff1d(np.arange(special_tokens.vocabulary), list(special_tokens.reserved))
    shown, labels = [], []
    for row, text in enumerate(texts, start=first_row):
        ids, label = np.array(text, np.int64), np.full(len(text), IGNORED)
        if text:
            generator = np.random.default_rng((seed, split, row))
            count = max(1, round(MASKED_SHARE * len(text)))
            chosen = generator.choice(len(text), count, replace=False)
            fate = generator.random(count)
            replacement = np.where(fate < 0.8, mask, generator.choice(ordinary, count))
            label[chosen] = ids[chosen]
            ids[chosen] = np.where(fate < 0.9, replacement, ids[chosen])
        shown.append(ids.tolist())
        labels.append(label.tolist())
    return shown, labels


def _needed(token: int, role: str = "unknown") -> int:
    if token == NOTHING:
        raise EncoderError(
            f"the tokenizer has no {role} token, which is needed: use another encoder"
        )
    return token


@dataclass(frozen=True)
class SpecialTokens:
    """How a tokenizer frames texts, and what else the layout and the mask need, in token ids.

    Attributes:
        between: separators between two texts: 1 for BERT-like tokenizers, 2 for RoBERTa-like ones.
        segments: ids of the first text (with [CLS]), of separators between, and of the second.
        reserved: ids that no text may yield.
        prefix: what a word needs before it to be tokenised as inside a sentence, such as a space.
    """

    cls: int
    sep: int
    pad: int
    between: int = 0
    segments: tuple[int, int, int] = (0, 0, 0)
    reserved: frozenset[int] = frozenset()
    vocabulary: int = 0
    unknown: int = NOTHING
    mask: int = NOTHING
    prefix: str = ""


def special_tokens_of(tokenizer: PreTrainedTokenizerBase, kind: TaskKind = "text") -> SpecialTokens:
    """Learn the special tokens from how a tokenizer frames texts itself."""
    cls, sep, pad, unknown, mask, begins = (
        NOTHING if (id := getattr(tokenizer, f"{role}_token_id")) is None else int(id)
        for role in ("cls", "sep", "pad", "unk", "mask", "bos")
    )
    special = frozenset(tokenizer.all_special_ids) - {unknown}
    found = SpecialTokens(
        cls, sep, pad, reserved=special, vocabulary=len(tokenizer), unknown=unknown, mask=mask
    )
    if kind == "causal":
        written = tokenizer("")["input_ids"][:1] == [begins]
        return replace(found, cls=begins if written else NOTHING, sep=NOTHING, pad=max(pad, 0))
    pair = tokenizer("one", "two")
    ids, sides = pair["input_ids"], pair.sequence_ids(0)
    first, second = (np.flatnonzero([side == text for side in sides]) for text in (0, 1))
    between = ids[first[-1] + 1 : second[0]]
    framed = ids[: first[0]] == [cls] and ids[second[-1] + 1 :] == [sep] and {*between} == {sep}
    if not framed or len(between) > 2 or pad == NOTHING:
        shown = " ".join(tokenizer.convert_ids_to_tokens(ids))
        raise EncoderError(
            f"the tokenizer of '{tokenizer.name_or_path}' frames two texts as '{shown}', not "
            "as [CLS] one [SEP] two [SEP] [PAD], with one or two separators between: use an "
            "encoder such as BERT or RoBERTa"
        )
    types = pair.get("token_type_ids") or [0] * len(ids)

    def plain(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    twice, once = plain("the the"), plain("the")
    spaced = twice != once * 2 and twice == once + plain(" the")
    return replace(
        found,
        between=len(between),
        segments=(types[first[0]], types[first[-1] + 1], types[second[0]]),
        reserved=special | {cls, sep, pad, mask} - {NOTHING},
        prefix=" " if spaced else "",
    )


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int, encoder: str) -> None:
    """Refuse a tokenizer with ids that an encoder has no embeddings for."""
    if (highest := max(tokenizer.get_vocab().values(), default=-1)) >= rows:
        raise EncoderError(
            f"the tokenizer of '{encoder}' gives ids up to {highest} and the model has embeddings "
            f"for {rows} tokens: give the model's own tokenizer"
        )
