"""What a changed model keeps of its embeddings, and how much two models' embeddings agree.

Every measure has the jackknife's 95 % interval over sentences: a sentence that is left out takes
all of its pairs along. The bootstrap will not do here: a sentence drawn twice is its own nearest
neighbour.
"""

import numpy as np
from jaxtyping import Float, Int

from papa.errors import DataError
from papa.scores.intervals import Interval, clipped, example_unit, over_examples
from papa.scores.metrics import mean_of
from papa.spec import TaskSpec
from papa.spec.task import EMBEDDING_METRICS

LEAST_SENTENCES = 4
"""Fewer have too few similarities to rank."""
MOST_SENTENCES = 2_000
"""More have too many similarities, one for each pair of sentences."""
MeasureAndInfluence = tuple[float, Float[np.ndarray, " sentences"]]
"""A measure, and what it loses without each sentence."""


def check_sentences(task: TaskSpec, rows: int) -> None:
    """Raise an error if a metric of embeddings has too few or too many validation rows."""
    if task.metric not in EMBEDDING_METRICS:
        return
    count = int(task.metric.removeprefix("nearest_")) if task.metric.startswith("nearest") else 0
    fewest = max(LEAST_SENTENCES, 2 * count + 1)
    if not fewest <= rows <= MOST_SENTENCES:
        raise DataError(
            f"task '{task.name}' has {rows} validation rows, and {task.metric} needs {fewest} "
            f"to {MOST_SENTENCES}: give other rows, or set validation_rows"
        )


def embedding_fidelity(
    before: Float[np.ndarray, "sentences width"], after: Float[np.ndarray, "sentences new_width"]
) -> dict[str, Interval]:
    """Return how much two models' embeddings of the same sentences, at least four, agree.

    ``cosine``: the mean cosine of a sentence's embedding to its own, where both have one width.
    ``similarities``: Spearman's correlation of the cosines of all pairs of sentences.
    ``nearest_1``, ``nearest_10``: the share of a sentence's nearest neighbours that stay among its
    nearest, where there are more than twice as many sentences.
    """
    measures = ["cosine"] if before.shape == after.shape else []
    measures.append("similarities")
    measures += [f"nearest_{count}" for count in (1, 10) if len(before) > 2 * count]
    return {
        name: clipped(
            name, over_examples(*embedding_score(name, before, after), example_unit(name))
        )
        for name in measures
    }


def embedding_score(
    measure: str,
    before: Float[np.ndarray, "sentences width"],
    after: Float[np.ndarray, "sentences new_width"],
) -> MeasureAndInfluence:
    """Return a measure of ``embedding_fidelity``, and what it loses without each sentence."""
    before = normalised(before)
    after = normalised(after)
    if measure == "cosine":
        return mean_of((before * after).sum(1))
    similarities_before = before @ before.T
    similarities_after = after @ after.T
    if measure == "similarities":
        return _rank_agreement(similarities_before, similarities_after)
    count = int(measure.removeprefix("nearest_"))
    return _neighbours_kept(similarities_before, similarities_after, count)


def normalised(
    embeddings: Float[np.ndarray, "sentences width"],
) -> Float[np.ndarray, "sentences width"]:
    """Return embeddings of length 1; those of length 0 stay as they are."""
    embeddings = embeddings.astype(np.float64)
    return embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)


def _rank_agreement(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"]
) -> MeasureAndInfluence:
    """Return Spearman's correlation over pairs; for a sentence left out, all of its pairs are."""
    first, second = np.triu_indices(len(before), 1)
    # A rank for each distinct cosine, 0 the lowest: ranks among fewer pairs follow by counting.
    dense = np.stack(
        [np.unique(cosines[first, second], return_inverse=True)[1] for cosines in (before, after)]
    )
    correlation = _correlation(dense)
    influence = np.zeros(len(before))
    for sentence in range(len(before)):
        others = (first != sentence) & (second != sentence)
        influence[sentence] = correlation - _correlation(dense[:, others])
    return correlation, influence


def _correlation(values: Int[np.ndarray, "2 pairs"]) -> float:
    """Return Spearman's correlation of values that are small integers; 0 where one side is
    constant.
    """
    # Equal values share the mean of their ranks, up to a constant that correlation ignores: the
    # number of values up to theirs, less half of those that equal it.
    ranks = []
    for side in values:
        counts = np.bincount(side)
        ranks.append((np.cumsum(counts) - counts / 2)[side])
    return float(np.corrcoef(ranks)[0, 1]) if all(map(np.ptp, ranks)) else 0.0


def _neighbours_kept(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"], count: int
) -> MeasureAndInfluence:
    """Return the share of the ``count`` nearest neighbours that stay, and what it loses without
    each sentence: where that is a neighbour, the next nearest takes its place.
    """
    # A sentence is no neighbour of itself.
    cosines = np.stack([before, after]) - np.diag(np.full(len(before), np.inf))
    # [2, n, count + 1]: before and after, a list of neighbours for each sentence. It has one more
    # than is counted: the next nearest, which follows where a sentence is left out.
    nearest = np.argsort(-cosines, axis=2, kind="stable")[:, :, : count + 1]

    def share_without(sentence: int | None) -> float:
        """Return the share of all sentences but one, or of all."""
        lists = nearest
        if sentence is not None:
            lists = nearest[:, np.arange(len(before)) != sentence]
        remains = lists != (-1 if sentence is None else sentence)
        is_among_nearest = remains & (remains.cumsum(axis=2) <= count)
        # A list of count + 1 loses at most one, so exactly ``count`` of each are among them.
        neighbours_before, neighbours_after = lists[is_among_nearest].reshape(2, -1, count)
        kept = neighbours_before[:, :, None] == neighbours_after[:, None]
        return float(kept.sum() / neighbours_before.size)

    share = share_without(None)
    return share, share - np.array([share_without(sentence) for sentence in range(len(before))])
