"""What a changed model keeps of its own answers: embeddings, classes, losses. No labels are needed.

Every measure has a 95 % interval over examples: the jackknife's, as a study's scores have it. For
similarities and neighbours an example is a sentence, with all of its pairs. The bootstrap will not
do there: a sentence drawn twice is its own nearest neighbour. The jackknife of neighbours is wider
than it need be, never too narrow.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from papa.scores.intervals import Interval, clipped, over_examples
from papa.scores.metrics import mean_of

NEIGHBOURS = (1, 10)
LEAST_SENTENCES = 4
"""Fewer have too few similarities to rank."""
Influenced = tuple[float, Float[np.ndarray, " sentences"]]
"""A measure, and what it loses without each sentence."""


def embedding_fidelity(
    before: Float[np.ndarray, "sentences width"], after: Float[np.ndarray, "sentences new_width"]
) -> dict[str, Interval]:
    """How alike two models' embeddings of the same sentences, at least four, are.

    ``cosine``: the mean cosine of a sentence's embedding to its own, where both have one width.
    ``similarities``: Spearman's correlation of the cosines of all pairs of sentences.
    ``nearest_1``, ``nearest_10``: the share of a sentence's nearest neighbours that stay among its
    nearest, where there are more than twice as many sentences.
    """
    kept = [f"nearest_{count}" for count in NEIGHBOURS if len(before) > 2 * count]
    same = ["cosine"] if before.shape == after.shape else []
    return {
        name: clipped(name, over_examples(*embedding_score(name, before, after)))
        for name in (*same, "similarities", *kept)
    }


def embedding_score(
    measure: str,
    before: Float[np.ndarray, "sentences width"],
    after: Float[np.ndarray, "sentences new_width"],
) -> Influenced:
    """One of the measures of ``embedding_fidelity``, and what it loses without each sentence."""
    before, after = (_normalised(embeddings) for embeddings in (before, after))
    if measure == "cosine":
        return mean_of((before * after).sum(1))
    similarities = before @ before.T, after @ after.T
    if measure == "similarities":
        return _rank_agreement(*similarities)
    return _neighbours_kept(*similarities, int(measure.removeprefix("nearest_")))


def pair_cosines(embeddings: Float[np.ndarray, "sentences width"]) -> Float[np.ndarray, " pairs"]:
    """The cosine of the first and second, the third and fourth embedding, and so on."""
    unit = _normalised(embeddings)
    return (unit[::2] * unit[1::2]).sum(1)


def mean_over_examples(
    measure: str,
    values: Shaped[np.ndarray, " answers"],
    lengths: Int[np.ndarray, " examples"] | None = None,
) -> Interval:
    """The mean of values, numbers or whether, with its interval over the examples that they belong
    to, ``lengths`` values to each, within what the measure can be. Numbers that are all the same
    have no ends, as nobody knows their scale.
    """
    unit = 1.0 if values.dtype == bool else math.nan
    return clipped(measure, over_examples(*mean_of(values, lengths), unit))


def _normalised(
    embeddings: Float[np.ndarray, "sentences width"],
) -> Float[np.ndarray, "sentences width"]:
    embeddings = embeddings.astype(np.float64)
    return embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)


def _rank_agreement(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"]
) -> Influenced:
    """Spearman's correlation over pairs; without a sentence all of its pairs are left out."""
    first, second = np.triu_indices(len(before), 1)
    # Ranks among all pairs, so that those among fewer need no other sort.
    dense = np.stack(
        [np.unique(one[first, second], return_inverse=True)[1] for one in (before, after)]
    )
    every = _correlation(dense)
    kept = ((first != out) & (second != out) for out in range(len(before)))
    return every, np.array([every - _correlation(dense[:, pairs]) for pairs in kept])


def _correlation(values: Int[np.ndarray, "2 pairs"]) -> float:
    """Spearman's correlation of values that are small integers; 0 where one side is constant."""
    counts = [np.bincount(one) for one in values]
    ranks = [(np.cumsum(n) - n / 2)[one] for n, one in zip(counts, values, strict=True)]
    return float(np.corrcoef(ranks)[0, 1]) if all(map(np.ptp, ranks)) else 0.0


def _neighbours_kept(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"], count: int
) -> Influenced:
    """The share of the nearest ``count`` that is kept; without a sentence, the next nearest takes
    its place.
    """
    found = [_nearest(similarities, count) for similarities in (before, after)]
    near, following = zip(*found, strict=True)
    rows = np.arange(len(before))
    kept = near[0] & near[1]
    enters = near[1][rows, following[0]], near[0][rows, following[1]]
    alone = kept.sum(1)[:, None] - kept * (1 - (following[0] == following[1]))[:, None]
    # [sentence, the one left out]
    without = alone + near[0] * enters[0][:, None] + near[1] * enters[1][:, None]
    np.fill_diagonal(without, 0)
    share = float(kept.sum() / (len(rows) * count))
    return share, share - without.sum(0) / ((len(rows) - 1) * count)


def _nearest(
    similarities: Float[np.ndarray, "n n"], count: int
) -> tuple[Bool[np.ndarray, "n n"], Int[np.ndarray, " n"]]:
    """Which sentences are the ``count`` nearest of each, and which one follows."""
    others = similarities.copy()
    np.fill_diagonal(others, -np.inf)
    order = np.argsort(-others, axis=1, kind="stable")
    near = np.zeros(others.shape, dtype=bool)
    np.put_along_axis(near, order[:, :count], True, axis=1)
    return near, order[:, count]
