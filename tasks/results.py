"""The results of a study, a row for every cell and seed: ``papa.reporting.columns`` says what every column is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from papa.spec import Metric
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from tasks.baseline import read_baseline
from tasks.probe import ScoredSeed, read_examples, read_scores

_FETCHED_AT_ONCE = 16
_Document = TypeVar("_Document")
_Of = TypeVar("_Of")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ScoredCell:
    """A cell and the finished probing that scores it.

    Attributes:
        cell: which.
        metric: its task's.
        scores: artifacts of stage ``probe``: one for all seeds, or one per seed. Cells that share a result share them.
    """

    cell: Cell
    metric: Metric
    scores: tuple[ArtifactReference, ...]


def cells_in_key(cells: Iterable[ScoredCell]) -> list[dict[str, Any]]:
    """What of scored cells enters a cache key beside their digests: an entry for every artifact of every cell."""
    return [{**one.cell.columns(), "metric": one.metric} for one in cells for _ in one.scores]


def digests_in_key(cells: Iterable[ScoredCell]) -> dict[str, str]:
    """The digests of the artifacts of scored cells, by number."""
    return {str(number): found.digest for number, found in enumerate(found for one in cells for found in one.scores)}


def results_table(cells: Sequence[ScoredCell], baselines: Mapping[tuple[str, str], ArtifactReference]) -> Any:
    """A pandas frame with the columns of ``results.parquet``; cells that share a result have rows of their own.

    Args:
        cells: every cell.
        baselines: artifacts of stage ``baseline``, by encoder label and task.
    """
    import pandas

    from papa.reporting.results import result_rows

    documents = _read(read_scores, (found for one in cells for found in one.scores))
    references = _read(read_baseline, baselines.values())
    rows: list[dict[str, Any]] = []
    for (encoder, task), found in baselines.items():
        reference = references[found]
        embeddings = {one.seed: one.score for one in reference.word_embeddings}
        own = [one for one in cells if (one.cell.encoder, one.cell.task) == (encoder, task)]
        over = _over_examples(own)
        for scored in own:
            intervals = over[scored.scores]
            for document in (documents[found] for found in scored.scores):
                rows += result_rows(
                    scored.cell,
                    scored.metric,
                    document,
                    intervals=intervals,
                    one_answer=reference.always_one_answer,
                    word_embeddings=embeddings,
                )
    return pandas.DataFrame(rows)


def _over_examples(cells: Sequence[ScoredCell]) -> dict[tuple[ArtifactReference, ...], Any]:
    """The intervals over validation examples of one encoder's cells on one task, by the artifacts that score them."""
    import numpy as np

    from papa.scores.intervals import over_examples

    distinct = list(dict.fromkeys(one.scores for one in cells))
    examples = _read(read_examples, (found for scores in distinct for found in scores))
    original = next((one.scores for one in cells if one.cell.fraction == 1), None)
    intervals = over_examples(
        cells[0].metric,
        [np.concatenate([examples[found] for found in scores]) for scores in distinct],
        distinct.index(original) if original else None,
    )
    return dict(zip(distinct, intervals, strict=True))


def _read(
    read: Callable[[Path], _Document], references: Iterable[ArtifactReference]
) -> dict[ArtifactReference, _Document]:
    """What artifacts hold, each read once."""
    distinct = list(dict.fromkeys(references))
    return dict(zip(distinct, in_threads(lambda one: read(one.folder), distinct, _FETCHED_AT_ONCE), strict=True))


def in_threads(function: Callable[[_Of], _Found], values: Iterable[_Of], threads: int) -> Iterator[_Found]:
    """``function`` of each value, in their order; after an error no further one is begun."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(function, values)
    finally:
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Worth:
    """What the scores of one encoder on one task are worth.

    Attributes:
        verdict: whether the original beats its baselines: ``yes``, ``no``, or why nobody can tell.
        baselines: score by name; those that were measured.
    """

    verdict: str
    baselines: Mapping[str, float]


def worth_of(results: ArtifactReference) -> dict[tuple[str, str], Worth]:
    """Read it from a study's results, by encoder label and task."""
    from papa.reporting.summary import read_summary
    from papa.reporting.verdicts import verdict

    summary = read_summary(results.folder / "summary.csv").drop_duplicates(["model", "task"])
    return {
        (row["model"], row["task"]): Worth(
            verdict(row),
            {name: row[name] for name in ("always_one_answer", "word_embeddings") if not math.isnan(row[name])},
        )
        for row in summary.to_dict("records")
    }


def relative_drop(originals: Mapping[int, float], one: ScoredSeed) -> float | None:
    """What a seed lost against its own original, relative to the mean original: the mean over seeds is the study's."""
    if one.seed not in originals:
        return None
    size = abs(sum(originals.values()) / len(originals))
    return (originals[one.seed] - one.score) / size if size else None
