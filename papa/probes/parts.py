"""Minibatches cut into parts that several workers can share; how they are cut does not depend on how many there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papa.corpora.split import TokenizedSplit
from papa.corpora.tokens import IGNORED
from papa.probes.order import seed_of


def part_tokens(on_gpu: bool) -> int:
    """Real tokens in a part, about, at most.

    Small enough that several workers get something to do, large enough that one alone loses little: on a CPU 5 % of
    the time for CoLA's minibatches of 32 rows (two parts each).
    """
    return 4_096 if on_gpu else 256


@dataclass(frozen=True)
class Part:
    """Some rows of a minibatch, computed together.

    Attributes:
        rows: their numbers, shortest first.
        tokens: real tokens of the rows: how much work they are.
        share: of the terms of the minibatch's mean loss, those of these rows; with it the parts' losses add up.
        dropout_seed: of the encoder's dropout, where it is on.
    """

    rows: np.ndarray
    tokens: int
    share: float
    dropout_seed: int


def parts_of(split: TokenizedSplit, minibatch: np.ndarray, tokens: int, seed: tuple[int, ...]) -> list[Part]:
    """Cut a minibatch into parts of like length and about equal tokens.

    Args:
        split: the rows and their labels.
        minibatch: row numbers.
        tokens: real tokens in a part, about, at most.
        seed: of the minibatch; with a part's place it gives the seed of its dropout.

    Returns:
        The parts that have a label, shortest rows first; none where the minibatch has no label at all.
        An even number, unless one is enough or rows are few: two workers then have the same to do.
    """
    local = minibatch - split.starts[0]
    first, lengths = split.first_lengths[local], split.lengths[local]
    order = np.lexsort((minibatch, lengths - first, first))
    ends = lengths[order].cumsum()
    count = -(-int(ends[-1]) // tokens)
    count = min(len(order), count + count % 2 if count > 1 else 1)
    # A row belongs to the part in which its middle lies.
    part = ((ends - lengths[order] / 2) * count // ends[-1]).astype(np.int64)
    pieces = [order[part == number] for number in range(count)]
    found = [(piece, terms) for piece in pieces if (terms := _loss_terms(split, minibatch[piece]))]
    total = sum(terms for _, terms in found)
    return [
        Part(minibatch[piece], int(lengths[piece].sum()), terms / total, seed_of(*seed, number))
        for number, (piece, terms) in enumerate(found)
    ]


def _loss_terms(split: TokenizedSplit, rows: np.ndarray) -> int:
    """What a mean loss is taken over: rows, or their labelled tokens."""
    if not split.label_per_token:
        return len(rows)
    local = rows - split.starts[0]
    spans = zip(split.offsets[local], split.offsets[local + 1], strict=True)
    return sum(int(np.count_nonzero(split.labels[start:end] != IGNORED)) for start, end in spans)
