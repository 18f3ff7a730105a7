"""The special tokens of a tokenizer, and where it puts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from papa.errors import EncoderError


@dataclass(frozen=True)
class Specials:
    """What the layout adds by id, learnt from how the tokenizer frames two texts itself.

    Attributes:
        cls, sep, pad: token ids.
        unknown, mask: token ids, where the tokenizer has them.
        between: separators between two texts: 1 for BERT-like tokenizers, 2 for RoBERTa-like ones.
        segments: segment ids of the first text (with [CLS]), of the separators between, and of the second
            text (with the last [SEP]); all 0 where the tokenizer gives none.
        prefix: what a word needs before it to be tokenised as inside a sentence: a space for most byte-level
            tokenizers.
        reserved: ids that no text may yield.
        vocabulary: how many ids there are.
    """

    cls: int
    sep: int
    pad: int
    unknown: int | None
    mask: int | None
    between: int
    segments: tuple[int, int, int]
    prefix: str
    reserved: frozenset[int]
    vocabulary: int


def specials_of(tokenizer: Any) -> Specials:
    """Learn the special tokens of a tokenizer of the ``transformers`` library.

    Raises:
        EncoderError: it is not a fast tokenizer, lacks a token the layout needs, or frames texts otherwise.
    """
    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False):
        raise EncoderError(
            f"the tokenizer of '{name}' has no fast version (tokenizer.json): use an encoder that has one"
        )
    for role in ("cls", "sep", "pad"):
        if getattr(tokenizer, f"{role}_token_id") is None:
            raise EncoderError(
                f"the tokenizer of '{name}' has no {role} token, which the layout ([CLS] text [PAD] [SEP]) "
                "needs: use an encoder such as BERT or RoBERTa"
            )
    cls, sep = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
    pair = tokenizer("one", "two")
    ids, sides = pair["input_ids"], pair.sequence_ids(0)
    first, second = _extent(sides, 0), _extent(sides, 1)
    between = ids[first[1] : second[0]]
    framed = ids[: first[0]] == [cls] and ids[second[1] :] == [sep] and set(between) == {sep}
    if not framed or len(between) > 2:
        shown = " ".join(tokenizer.convert_ids_to_tokens(ids))
        raise EncoderError(
            f"the tokenizer of '{name}' frames two texts as '{shown}' where the layout expects [CLS] one "
            "[SEP] two [SEP], with one or two separators between: use an encoder such as BERT or RoBERTa"
        )
    types = pair.get("token_type_ids") or [0] * len(ids)
    unknown, mask = tokenizer.unk_token_id, tokenizer.mask_token_id
    ends = {sep, cls, int(tokenizer.pad_token_id)} | ({int(mask)} if mask is not None else set())
    return Specials(
        cls=cls,
        sep=sep,
        pad=int(tokenizer.pad_token_id),
        unknown=None if unknown is None else int(unknown),
        mask=None if mask is None else int(mask),
        between=len(between),
        segments=(types[first[0]], types[first[1]], types[second[0]]),
        prefix=_prefix(tokenizer),
        reserved=frozenset(ends | (set(tokenizer.all_special_ids) - {unknown})),
        vocabulary=len(tokenizer),
    )


def _extent(sides: list[int | None], side: int) -> tuple[int, int]:
    places = [place for place, value in enumerate(sides) if value == side]
    return places[0], places[-1] + 1


def _prefix(tokenizer: Any) -> str:
    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    return " " if ids("the the") != ids("the") * 2 and ids("the the") == ids("the") + ids(" the") else ""
