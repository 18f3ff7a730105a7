"""The results of a study, one row a cell: docs/results.md says what every column is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from papa.spec import Metric
from papa.storage.artifacts import ArtifactReference
from tasks.baseline import read_baseline
from tasks.probe import read_examples, read_scores

_FETCHED_AT_ONCE = 16
_Document = TypeVar("_Document")


@dataclass(frozen=True)
class Point:
    """One combination of a study and the finished probing that scores it.

    Attributes:
        model: the encoder's name in tables.
        task, metric: the task and its metric.
        constants, order, fraction: the combination.
        scores: the artifact of stage ``probe``; combinations may share it.
    """

    model: str
    task: str
    metric: Metric
    constants: str
    order: str
    fraction: float
    scores: ArtifactReference

    def combination(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "task": self.task,
            "metric": self.metric,
            "constants": self.constants,
            "order": self.order,
            "fraction": self.fraction,
        }


def results_table(points: tuple[Point, ...], baselines: Mapping[tuple[str, str], ArtifactReference]) -> Any:
    """A pandas frame with the columns of ``results.parquet``.

    Args:
        points: every combination.
        baselines: artifacts of stage ``baseline``, by model and task.
    """
    import pandas

    documents = _read(read_scores, (point.scores for point in points))
    references = _read(read_baseline, baselines.values())
    rows = []
    for (model, task), found in baselines.items():
        reference = references[found]
        constant = reference.always_one_answer
        embeddings = {one.seed: one.score for one in reference.word_embeddings}
        own = [point for point in points if (point.model, point.task) == (model, task)]
        over = _over_examples(own)
        for point in own:
            document, intervals = documents[point.scores], over[_place(point)]
            unseen = document.unseen_share
            for one in document.scores:
                rows.append(
                    {
                        "model": model,
                        "task": task,
                        "constants": point.constants,
                        "order": point.order,
                        "fraction": point.fraction,
                        "constant_heads": len(document.constant_heads),
                        "seed": one.seed,
                        "metric": point.metric,
                        "score": one.score,
                        "seconds": one.seconds,
                        "coverage": math.nan if unseen is None else unseen,
                        "heads": document.heads,
                        "positive": document.positive or "",
                        "always_one_answer": constant.score,
                        "one_answer": constant.answer or "",
                        "word_embeddings": embeddings[one.seed],
                        "score_examples_low": intervals.score[0],
                        "score_examples_high": intervals.score[1],
                        "drop_examples_low": intervals.drop[0],
                        "drop_examples_high": intervals.drop[1],
                    }
                )
    return pandas.DataFrame(rows)


def _over_examples(points: list[Point]) -> dict[tuple[Any, ...], Any]:
    """The intervals over validation examples of one encoder's points on one task, by combination."""
    import numpy as np

    from papa.scores.intervals import over_examples

    # A combination's seeds may lie in several artifacts, and an artifact may serve several combinations.
    artifacts: dict[tuple[Any, ...], tuple[ArtifactReference, ...]] = {}
    for point in points:
        artifacts[_place(point)] = (*artifacts.get(_place(point), ()), point.scores)
    distinct = list(dict.fromkeys(artifacts.values()))
    examples = _read(read_examples, (point.scores for point in points))
    originals = [artifacts[_place(point)] for point in points if point.fraction == 1]
    found = over_examples(
        points[0].metric,
        [np.concatenate([examples[one] for one in parts]) for parts in distinct],
        distinct.index(originals[0]) if originals else None,
    )
    intervals = dict(zip(distinct, found, strict=True))
    return {place: intervals[parts] for place, parts in artifacts.items()}


def _place(point: Point) -> tuple[Any, ...]:
    return point.constants, point.order, point.fraction


def _read(
    read: Callable[[Path], _Document], references: Iterable[ArtifactReference]
) -> dict[ArtifactReference, _Document]:
    """What artifacts hold, each read once."""
    distinct = list(dict.fromkeys(references))
    with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
        return dict(zip(distinct, threads.map(lambda one: read(one.folder), distinct), strict=True))
