"""Text and words to token ids; special tokens written out in the text are text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from papa.corpora.ragged import Ragged
from papa.errors import EncoderError, in_one_line
from papa.spec import TaskKind

if TYPE_CHECKING:  # reading text needs no transformers until a tokenizer is loaded
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""The label of a token that is not scored."""
NOTHING = -1
"""In place of a special token that a decoder's texts have not."""
MASKED_SHARE = 0.15
"""Of a row's text tokens, how many a masked language model must restore (at least one)."""


@contextmanager
def _usable(tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
    """What a tokenizer whose files are damaged raises when it is used becomes one sentence."""
    try:
        yield
    except EncoderError:
        raise
    except Exception as error:
        raise EncoderError(
            f"the tokenizer of '{_name(tokenizer)}' cannot be used ({in_one_line(error)}): get its "
            "files again"
        ) from None


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)


def tokens_of_texts(
    tokenizer: PreTrainedTokenizerBase, special_tokens: SpecialTokens, texts: Sequence[str]
) -> Ragged:
    """Token ids of each text, uncut and without special tokens."""
    with _usable(tokenizer):
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
    # Some vocabularies (Unigram) hold "</s>" as a piece too: such text becomes unknown, never
    # special.
    special = np.isin(tokens.values, list(special_tokens.reserved))
    if special.any():
        tokens.values[special] = _unknown(special_tokens)
    return tokens


def tokens_of_words(
    tokenizer: PreTrainedTokenizerBase, special_tokens: SpecialTokens, words: pa.LargeListArray
) -> tuple[Ragged, Ragged]:
    """Sub-tokens of each row's words, uncut; and for a word's first sub-token the word's number,
    else -1.

    Words are numbered within the whole array. Each distinct word is tokenised once, alone, as it
    would be inside a sentence; a word that yields nothing becomes the unknown token.
    """
    distinct = words.flatten().dictionary_encode()
    spelled = [special_tokens.prefix + word.strip() for word in distinct.dictionary.to_pylist()]
    vocabulary = tokens_of_texts(tokenizer, special_tokens, spelled) if spelled else Ragged.of([])
    empty = vocabulary.lengths == 0
    if empty.any():
        lengths = np.maximum(vocabulary.lengths, 1)
        values = np.full(int(lengths.sum()), _unknown(special_tokens), np.int32)
        values[np.repeat(~empty, lengths)] = vocabulary.values
        vocabulary = Ragged(values, lengths)
    tokens = vocabulary.take(distinct.indices.to_numpy(zero_copy_only=False))
    number = np.repeat(np.arange(len(tokens.lengths)), tokens.lengths)
    firsts = Ragged(np.where(tokens.positions == 0, number, -1), tokens.lengths)
    counts = words.value_lengths().to_numpy(zero_copy_only=False)
    return tokens.joined(counts), firsts.joined(counts)


def masked(
    tokens: Ragged, special_tokens: SpecialTokens, seed: int, split: int, first_row: int
) -> tuple[Ragged, np.ndarray]:
    """Hide tokens as BERT was trained: the ids to show, and the labels [tokens] to restore (-100
    elsewhere).

    80 % of the chosen tokens become [MASK], 10 % a random token and 10 % stay. The choice depends
    on the seed, the split and the row's number alone, not on how rows are sharded.
    """
    mask = check_mask(special_tokens)
    ordinary = np.setdiff1d(np.arange(special_tokens.vocabulary), list(special_tokens.reserved))
    shown, labels = tokens.values.copy(), np.full(len(tokens.values), IGNORED, np.int64)
    offsets = tokens.offsets
    for row, (start, length) in enumerate(
        zip(offsets[:-1], tokens.lengths, strict=True), start=first_row
    ):
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


def check_mask(special_tokens: SpecialTokens) -> int:
    """The mask token's id."""
    if special_tokens.mask is None:
        raise EncoderError(
            "the tokenizer has no mask token, which a masked language model needs: use another "
            "encoder"
        )
    return special_tokens.mask


def _unknown(special_tokens: SpecialTokens) -> int:
    if special_tokens.unknown is None:
        raise EncoderError(
            "the tokenizer has no unknown token for text that it cannot spell: use another encoder"
        )
    return special_tokens.unknown


@dataclass(frozen=True)
class Framing:
    """How a tokenizer frames one text or two: ``[CLS] a [SEP]``, ``[CLS] a [SEP] b [SEP]``.

    Attributes:
        cls, sep, pad: token ids.
        between: separators between two texts: 1 for BERT-like tokenizers, 2 for RoBERTa-like ones.
        segments: segment ids of the first text (with [CLS]), of the separators between, and of the
            second text (with the last [SEP]); all 0 where the tokenizer gives none.
    """

    cls: int
    sep: int
    pad: int
    between: int
    segments: tuple[int, int, int]


@dataclass(frozen=True)
class SpecialTokens(Framing):
    """What the layout and the mask need of a tokenizer, learnt from how it frames two texts itself.

    Attributes:
        unknown, mask: token ids, where the tokenizer has them.
        prefix: what a word needs before it to be tokenised as inside a sentence: a space for most
            byte-level tokenizers.
        reserved: ids that no text may yield.
        vocabulary: how many ids there are.
    """

    unknown: int | None
    mask: int | None
    prefix: str
    reserved: frozenset[int]
    vocabulary: int


def special_tokens_of(tokenizer: PreTrainedTokenizerBase) -> SpecialTokens:
    """Learn the special tokens of a tokenizer of the ``transformers`` library."""
    with _usable(tokenizer):
        return _special_tokens(tokenizer)


def special_tokens_for(kind: TaskKind, tokenizer: PreTrainedTokenizerBase) -> SpecialTokens:
    """The special tokens of a tokenizer as texts of a task are framed: those of a decoder begin
    with its first token, where it writes one, and end with none.
    """
    if kind != "causal":
        return special_tokens_of(tokenizer)
    with _usable(tokenizer):
        begins, unknown = tokenizer.bos_token_id, tokenizer.unk_token_id
        written = tokenizer("")["input_ids"][:1] == [begins]
        return SpecialTokens(
            cls=int(begins) if written else NOTHING,
            sep=NOTHING,
            pad=tokenizer.pad_token_id or 0,
            unknown=unknown,
            mask=None,
            between=0,
            segments=(0, 0, 0),
            prefix="",
            reserved=frozenset(set(tokenizer.all_special_ids) - {unknown}),
            vocabulary=len(tokenizer),
        )


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int, encoder: str) -> None:
    """Refuse a tokenizer with ids that an encoder has no embeddings for."""
    with _usable(tokenizer):
        highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= rows:
        raise EncoderError(
            f"the tokenizer of '{encoder}' gives ids up to {highest} and the model has embeddings "
            f"for {rows} tokens: give the model's own tokenizer"
        )


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> SpecialTokens:
    name = _name(tokenizer)
    if not getattr(tokenizer, "is_fast", False):
        raise EncoderError(
            f"the tokenizer of '{name}' has no fast version (tokenizer.json): use an encoder that "
            "has one"
        )
    for role in ("cls", "sep", "pad"):
        if getattr(tokenizer, f"{role}_token_id") is None:
            raise EncoderError(
                f"the tokenizer of '{name}' has no {role} token, which the layout ([CLS] text "
                "[PAD] [SEP]) needs: use an encoder such as BERT or RoBERTa"
            )
    cls, sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
    pair = tokenizer("one", "two")
    ids, sides = pair["input_ids"], pair.sequence_ids(0)
    first, second = (np.flatnonzero([side == text for side in sides]) for text in (0, 1))
    between = ids[first[-1] + 1 : second[0]]
    framed = ids[: first[0]] == [cls] and ids[second[-1] + 1 :] == [sep] and {*between} == {sep}
    if not framed or len(between) > 2:
        shown = " ".join(tokenizer.convert_ids_to_tokens(ids))
        raise EncoderError(
            f"the tokenizer of '{name}' frames two texts as '{shown}' where the layout expects "
            "[CLS] one [SEP] two [SEP], with one or two separators between: use an encoder such "
            "as BERT or RoBERTa"
        )
    types = pair.get("token_type_ids") or [0] * len(ids)
    unknown, mask = tokenizer.unk_token_id, tokenizer.mask_token_id
    ends = {sep, cls, int(tokenizer.pad_token_id)} | ({int(mask)} if mask is not None else set())
    return SpecialTokens(
        cls=cls,
        sep=sep,
        pad=int(tokenizer.pad_token_id),
        unknown=None if unknown is None else int(unknown),
        mask=None if mask is None else int(mask),
        between=len(between),
        segments=(types[first[0]], types[first[-1] + 1], types[second[0]]),
        prefix=_prefix(tokenizer),
        reserved=frozenset(ends | (set(tokenizer.all_special_ids) - {unknown})),
        vocabulary=len(tokenizer),
    )


def _prefix(tokenizer: PreTrainedTokenizerBase) -> str:
    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    twice, once = ids("the the"), ids("the")
    return " " if twice != once * 2 and twice == once + ids(" the") else ""
