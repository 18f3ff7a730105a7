"""The results of a study, a row a cell and seed: ``papa.reporting.columns`` has the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from papa.spec import Metric
from papa.spec.cells import Cell
from papa.storage.artifacts import Address, ArtifactReference, reading
from papa.study.baseline import read_baseline
from papa.study.own import Own
from papa.study.probe import Probe, ProbeScores, ScoredSeed, read_examples, read_scores
from papa.study.step import Step

if TYPE_CHECKING:
    from papa.scores.intervals import Measured

_FETCHED_AT_ONCE = 16
_Document = TypeVar("_Document")
_Of = TypeVar("_Of")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ScoredCell:
    """A cell and the finished probing that scores it.

    Attributes:
        scores: artifacts of stage ``probe``: one for all seeds, or one per seed. Cells that share a
            result share them.
    """

    cell: Cell
    metric: Metric
    scores: tuple[ArtifactReference, ...]


@dataclass(frozen=True)
class ProbedCell:
    """A cell and the steps that score it.

    Attributes:
        probes: steps of stage ``probe``: one for all seeds, or one per seed. Cells that share a
            result share them.
    """

    cell: Cell
    metric: Metric
    probes: tuple[Probe | Own, ...]

    def scored(self, found: Mapping[Step, ArtifactReference]) -> ScoredCell:
        """It, once its steps are finished."""
        return ScoredCell(self.cell, self.metric, tuple(found[step] for step in self.probes))


def cells_in_key(cells: Iterable[ProbedCell]) -> list[dict[str, Any]]:
    """What of cells enters a cache key beside their steps: an entry for each step of each."""
    return [
        {**probed.cell.columns(), "metric": probed.metric}
        for probed in cells
        for _ in probed.probes
    ]


def probes_of(cells: Iterable[ProbedCell]) -> dict[str, Step]:
    """The steps that score cells, by number."""
    return {
        str(number): step
        for number, step in enumerate(step for probed in cells for step in probed.probes)
    }


def results_table(
    cells: Sequence[ScoredCell], baselines: Mapping[tuple[str, str], ArtifactReference]
) -> Any:
    """A pandas frame with the columns of ``results.parquet``; cells that share a result have rows
    of their own.

    Args:
        baselines: artifacts of stage ``baseline``, by encoder label and task; none for a model's
            own head.
    """
    import pandas

    from papa.reporting.columns import result_rows

    documents = _read(read_scores, (found for scored in cells for found in scored.scores))
    references = _read(read_baseline, baselines.values())
    rows: list[dict[str, Any]] = []
    for pair in dict.fromkeys((scored.cell.encoder, scored.cell.task) for scored in cells):
        own = [scored for scored in cells if (scored.cell.encoder, scored.cell.task) == pair]
        measured = _measured(own, documents)
        answer = words = None
        if found := baselines.get(pair):
            reference = references[found]
            answer = reference.always_one_answer
            parts = [(reference.word_embeddings, reference.word_examples)]
            words = measured_of(own[0].metric, parts, found.path)
        for scored in own:
            for document in (documents[found] for found in scored.scores):
                rows += result_rows(
                    scored.cell,
                    scored.metric,
                    document,
                    measured=measured[scored.scores],
                    one_answer=answer,
                    word_embeddings=words,
                )
    return pandas.DataFrame(rows)


def _measured(
    cells: Sequence[ScoredCell], documents: Mapping[ArtifactReference, ProbeScores]
) -> dict[tuple[ArtifactReference, ...], Measured]:
    """The scores of one encoder's cells on one task, by the artifacts that hold them."""
    distinct = list(dict.fromkeys(scored.scores for scored in cells))
    examples = _read(read_examples, (found for scores in distinct for found in scores))
    return {
        scores: measured_of(
            cells[0].metric,
            [(documents[reference].scores, examples[reference]) for reference in scores],
            scores[0].path,
        )
        for scores in distinct
    }


def measured_of(
    metric: Metric, parts: Iterable[tuple[Sequence[ScoredSeed], Any]], address: Address
) -> Measured:
    """The scores of all seeds, from those of some seeds and what examples add to them.

    Raises:
        ArtifactError: of what lies at ``address``, one does not fit the other or the metric.
    """
    from papa.scores.intervals import Measured

    with reading(address):
        seeds = [seed for part in parts for seed in zip(*part, strict=True)]
        scores = {scored.seed: scored.score for scored, _ in seeds}
        return Measured.of(metric, scores, [examples for _, examples in seeds])


def _read(
    read: Callable[[Path], _Document], references: Iterable[ArtifactReference]
) -> dict[ArtifactReference, _Document]:
    """What artifacts hold, each read once."""
    distinct = list(dict.fromkeys(references))
    return dict(
        zip(
            distinct,
            in_threads(lambda reference: read(reference.folder), distinct, _FETCHED_AT_ONCE),
            strict=True,
        )
    )


def in_threads(
    function: Callable[[_Of], _Found], values: Iterable[_Of], threads: int
) -> Iterator[_Found]:
    """``function`` of each value, in their order; after an error no further one is begun."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(function, values)
    finally:
        executor.shutdown(cancel_futures=True)
