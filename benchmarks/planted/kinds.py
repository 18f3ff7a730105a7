"""The kinds of planted models: what each has to compute, and which heads can compute it.

A planted head is trained; every other head is a decoy: its maps keep their random start, so that
it writes noise that the model learns to live with. A *content* head has to look at what the tokens
are. A *position* head may look at positions alone, so its average attention serves as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

LENGTH = 16
"""Tokens in a text."""
SYMBOLS = 16
"""Symbols follow the start token and the mask."""
FIRST_SYMBOL = 2
START = 0
MASK = 1
VOCABULARY = FIRST_SYMBOL + SYMBOLS
IGNORED = -100
"""The label of a token that has none, as in transformers."""

Head = tuple[int, int]
Output = Literal["classes", "tags", "masked words", "next words", "embeddings"]
Decoys = Literal["quiet", "loud", "sharp", "harmful"]
Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class PlantedKind:
    """One kind of planted models.

    Attributes:
        name: what the tables call it.
        output: what the model puts out, which decides its architecture.
        draw: token ids [texts, LENGTH] and labels, drawn with a generator.
        content_heads: planted heads whose attention has to depend on the tokens.
        position_heads: planted heads whose attention may depend on positions alone.
        decoys: "loud" decoys write five times as much as quiet ones, "sharp" ones attend to few
            tokens, and one "harmful" decoy adds noise after training.
        is_redundant: in training one of the content heads is left out at random, so that either
            does the whole job.
    """

    name: str
    output: Output
    draw: Draw
    content_heads: tuple[Head, ...]
    position_heads: tuple[Head, ...] = ()
    decoys: Decoys = "quiet"
    is_redundant: bool = False

    def needed_heads(self, substitute: str) -> frozenset[Head]:
        """Return the heads that cannot be replaced by ``substitute`` without loss."""
        if substitute == "average":
            return frozenset(self.content_heads)
        return frozenset(self.content_heads + self.position_heads)


def random_symbols(texts: int, generator: torch.Generator) -> Tensor:
    """Return texts of symbols [texts, LENGTH] behind a start token."""
    ids = torch.randint(FIRST_SYMBOL, VOCABULARY, (texts, LENGTH), generator=generator)
    ids[:, 0] = START
    return ids


def marked_symbol(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts with one marked symbol; labels [texts] say which symbol it is.

    A marked symbol is a token of its own (symbol + SYMBOLS), so that one head finds and copies it.
    """
    ids = random_symbols(texts, generator)
    rows = torch.arange(texts)
    position = torch.randint(1, LENGTH - 1, (texts,), generator=generator)
    symbol = ids[rows, position] - FIRST_SYMBOL
    ids[rows, position] += SYMBOLS
    return ids, symbol


def masked_symbol(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts with one marked symbol and one mask, whose word is the marked symbol's."""
    ids, symbol = marked_symbol(texts, generator)
    labels = torch.full_like(ids, IGNORED)
    ids[:, LENGTH - 1] = MASK
    labels[:, LENGTH - 1] = symbol + FIRST_SYMBOL
    return ids, labels


def tags_of_marked_symbol(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts with one marked symbol; every token's tag says whether the symbol is an even
    one.
    """
    ids, symbol = marked_symbol(texts, generator)
    return ids, (symbol % 2)[:, None].expand(-1, LENGTH).clone()


def copied_symbols(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts for decoders: the second half repeats the first, so a position says what to
    copy.
    """
    ids = random_symbols(texts, generator)
    half = LENGTH // 2
    ids[:, half:] = ids[:, :half]
    labels = ids.clone()
    labels[:, : half + 1] = IGNORED
    return ids, labels


def periodic_symbols(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts for decoders that repeat 4 to 7 different symbols (induction).

    The period differs from text to text, so no position says what comes next.
    """
    order = torch.rand(texts, SYMBOLS, generator=generator).argsort(1)
    period = torch.randint(4, 8, (texts, 1), generator=generator)
    position = torch.arange(LENGTH)[None]
    ids = FIRST_SYMBOL + order.gather(1, position % period)
    labels = torch.where(position > period, ids, IGNORED)
    return ids, labels


def fourth_symbol(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts whose label [texts] is the symbol at a fixed position."""
    ids = random_symbols(texts, generator)
    return ids, ids[:, 4] - FIRST_SYMBOL


def majority(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts whose label [texts] says whether most symbols are of the upper half."""
    share = torch.rand(texts, 1, generator=generator)
    is_upper = torch.rand(texts, LENGTH, generator=generator) < share
    symbol = torch.randint(0, SYMBOLS // 2, (texts, LENGTH), generator=generator)
    ids = FIRST_SYMBOL + symbol + is_upper * (SYMBOLS // 2)
    ids[:, 0] = START
    return ids, (is_upper[:, 1:].float().mean(1) > 0.5).long()


def two_marked_symbols(texts: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return texts whose label [texts] needs a marked symbol and the symbol at a fixed position."""
    ids, symbol = marked_symbol(texts, generator)
    fixed = torch.randint(0, SYMBOLS, (texts,), generator=generator)
    ids[:, LENGTH - 1] = FIRST_SYMBOL + fixed
    return ids, (symbol // 4) * 4 + fixed // 4


def kinds(layers: int) -> tuple[PlantedKind, ...]:
    """Return the kinds, planted in models of ``layers`` layers with at least three heads each."""
    last = layers - 1
    return (
        PlantedKind("label head", "classes", marked_symbol, ((last, 1),)),
        PlantedKind("label head, loud decoys", "classes", marked_symbol, ((0, 2),), decoys="loud"),
        PlantedKind(
            "label head, sharp decoys", "classes", marked_symbol, ((0, 0),), decoys="sharp"
        ),
        PlantedKind(
            "label head, harmful decoy", "classes", marked_symbol, ((0, 1),), decoys="harmful"
        ),
        PlantedKind(
            "redundant pair", "classes", marked_symbol, ((0, 0), (0, 2)), is_redundant=True
        ),
        PlantedKind("position head", "classes", fourth_symbol, (), ((0, 1),)),
        PlantedKind("uniform head", "classes", majority, (), ((0, 2),)),
        PlantedKind("content and position", "classes", two_marked_symbols, ((0, 0),), ((0, 1),)),
        PlantedKind("tag head", "tags", tags_of_marked_symbol, ((last, 0),)),
        PlantedKind("masked word head", "masked words", masked_symbol, ((last, 2),)),
        PlantedKind("embedding head", "embeddings", marked_symbol, ((0, 1),)),
        PlantedKind("decoder, copy by position", "next words", copied_symbols, (), ((0, 0),)),
        PlantedKind("decoder, induction", "next words", periodic_symbols, ((1, 1),), ((0, 0),)),
    )
