"""Random batches of like length, for training through the encoder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from papa.corpora.split import TokenizedSplit

GROUPED_BATCHES = 32
"""Batches whose rows are sorted by length together, so that inputs of like length meet and little padding is left."""


def grouped_batches(
    split: TokenizedSplit, rows: np.ndarray, batch_size: int, seed: tuple[int, int]
) -> Iterator[np.ndarray]:
    """The rows once, in random batches of like length.

    Rows are shuffled and cut into groups of 32 batches; a group's rows are sorted by length and its batches shuffled.

    Args:
        split: knows the rows' lengths.
        rows: row numbers.
        batch_size: rows in a batch.
        seed: of the generator.
    """
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(rows)
    group = GROUPED_BATCHES * batch_size
    for start in range(0, len(shuffled), group):
        members = shuffled[start : start + group]
        local = members - split.rows[0]
        first = split.first_lengths[local]
        members = members[np.lexsort((split.lengths[local] - first, first))]
        batches = [members[at : at + batch_size] for at in range(0, len(members), batch_size)]
        for index in generator.permutation(len(batches)):
            yield batches[index]
