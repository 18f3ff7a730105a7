"""The rows of ``results.parquet``: ``papa.reporting.columns`` says what every column is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from papa.scores.baselines import ConstantAnswer
from papa.scores.intervals import OverExamples
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
    intervals: OverExamples,
    one_answer: ConstantAnswer,
    word_embeddings: Mapping[int, float],
) -> list[dict[str, Any]]:
    """A row for each seed of a finished probing, in one of the cells that it scores.

    Args:
        cell: which.
        metric: its task's.
        found: the scores.
        intervals: of the cell, over validation examples.
        one_answer: what always giving one answer scores.
        word_embeddings: what the probe scores on word embeddings alone, by seed.
    """
    unseen = found.unseen_share
    return [
        {
            **cell.columns(),
            "constant_heads": len(found.constant_heads),
            "seed": one.seed,
            "metric": metric,
            "score": one.score,
            "seconds": one.seconds,
            "unseen_share": math.nan if unseen is None else unseen,
            "heads": found.heads,
            "positive": found.positive or "",
            "always_one_answer": one_answer.score,
            "one_answer": one_answer.answer or "",
            "word_embeddings": word_embeddings[one.seed],
            "score_examples_low": intervals.score[0],
            "score_examples_high": intervals.score[1],
            "drop_examples_low": intervals.drop[0],
            "drop_examples_high": intervals.drop[1],
        }
        for one in found.scores
    ]
