"""The rows of ``results.parquet``: ``papa.reporting.columns`` says what every column is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from papa.scores.baselines import ConstantAnswer
from papa.scores.examples import influence
from papa.scores.intervals import Measured
from papa.spec import Metric
from papa.spec.cells import Cell


@runtime_checkable
class OneScore(Protocol):
    """The score of one seed, and its share of the seconds that training and scoring took."""

    @property
    def seed(self) -> int: ...
    @property
    def score(self) -> float: ...
    @property
    def seconds(self) -> float: ...


@runtime_checkable
class Scores(Protocol):
    """What a finished probing found: see ``papa.probes.cell.CellScores``."""

    @property
    def scores(self) -> Sequence[OneScore]: ...
    @property
    def positive(self) -> str | None: ...
    @property
    def unseen_share(self) -> float | None: ...
    @property
    def constant_heads(self) -> Sequence[tuple[int, int]]: ...
    @property
    def heads(self) -> int: ...


def result_rows(
    cell: Cell,
    metric: Metric,
    found: Scores,
    *,
    measured: Measured,
    one_answer: ConstantAnswer | None,
    word_embeddings: Measured | None,
) -> list[dict[str, Any]]:
    """A row for each seed of a finished probing, in one of the cells that it scores.

    Args:
        one_answer: what always giving one answer scores; None for a model's own head.
        word_embeddings: what the probe scores on word embeddings alone; None likewise.
    """
    unseen = found.unseen_share
    nothing = np.zeros(0, np.float32)
    of_answer = influence(metric, one_answer.examples).astype(np.float32) if one_answer else nothing
    return [
        {
            **cell.columns(),
            "constant_heads": len(found.constant_heads),
            "seed": scored.seed,
            "metric": metric,
            "score": scored.score,
            "seconds": scored.seconds,
            "unseen_share": math.nan if unseen is None else unseen,
            "heads": found.heads,
            "positive": found.positive or "",
            "always_one_answer": one_answer.score if one_answer else math.nan,
            "one_answer": (one_answer and one_answer.answer) or "",
            "word_embeddings": word_embeddings.scores[scored.seed] if word_embeddings else math.nan,
            "influence": measured.influence[scored.seed].astype(np.float32),
            "one_answer_influence": of_answer,
            "word_embeddings_influence": word_embeddings.influence[scored.seed].astype(np.float32)
            if word_embeddings
            else nothing,
        }
        for scored in found.scores
    ]
