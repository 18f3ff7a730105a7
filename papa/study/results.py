"""The results of a study, a row a cell and seed (``papa.reporting.columns`` has the columns); the
head orders that its cells followed; and the cells whose constant heads need no cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from papa.spec import Metric, StudySpec
from papa.spec.cells import Cell
from papa.spec.orders import needs_lambda, scored_by
from papa.storage.artifacts import Address, ArtifactReference, read_metadata, reading
from papa.study.baseline import read_baseline
from papa.study.own import Own
from papa.study.probe import Probe, ProbeScores, ScoredSeed, read_examples, read_scores
from papa.study.score_heads import ScoreHeads
from papa.study.step import Step

if TYPE_CHECKING:
    from papa.reporting.cache import CachedCell
    from papa.reporting.orders import FoundOrder
    from papa.scores.intervals import Measured

_FETCHED_AT_ONCE = 16
_Document = TypeVar("_Document")
_Of = TypeVar("_Of")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class ProbedCell:
    """A cell and the steps that score it: one for all seeds, or one per seed. Cells that share a
    result share them.
    """

    cell: Cell
    metric: Metric
    probes: tuple[Probe | Own, ...]


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
    cells: Sequence[ProbedCell],
    baselines: Mapping[tuple[str, str], Step],
    found: Mapping[Step, ArtifactReference],
) -> Any:
    """A pandas frame with the columns of ``results.parquet``; cells that share a result have rows
    of their own. Baselines are by encoder label and task; a model's own head has none.
    """
    import pandas

    from papa.reporting.columns import result_rows

    documents = _read(read_scores, (step for probed in cells for step in probed.probes), found)
    references = _read(read_baseline, baselines.values(), found)
    rows: list[dict[str, Any]] = []
    for pair in dict.fromkeys((probed.cell.encoder, probed.cell.task) for probed in cells):
        own = [probed for probed in cells if (probed.cell.encoder, probed.cell.task) == pair]
        measured = _measured(own, documents, found)
        answer = words = None
        if baseline := baselines.get(pair):
            reference = references[baseline]
            answer = reference.always_one_answer
            parts = [(reference.word_embeddings, reference.word_examples)]
            words = measured_of(own[0].metric, parts, found[baseline].path)
        for probed in own:
            for step in probed.probes:
                rows += result_rows(
                    probed.cell,
                    probed.metric,
                    documents[step],
                    measured=measured[probed.probes],
                    one_answer=answer,
                    word_embeddings=words,
                )
    return pandas.DataFrame(rows)


def _measured(
    cells: Sequence[ProbedCell],
    documents: Mapping[Step, ProbeScores],
    found: Mapping[Step, ArtifactReference],
) -> dict[tuple[Step, ...], Measured]:
    """The scores of one encoder's cells on one task, by the steps that score them."""
    distinct = list(dict.fromkeys(probed.probes for probed in cells))
    examples = _read(read_examples, (step for probes in distinct for step in probes), found)
    return {
        probes: measured_of(
            cells[0].metric,
            [(documents[step].scores, examples[step]) for step in probes],
            found[probes[0]].path,
        )
        for probes in distinct
    }


def measured_of(
    metric: Metric, parts: Iterable[tuple[Sequence[ScoredSeed], Any]], address: Address
) -> Measured:
    """The scores of all seeds, from those of some seeds and what examples add to them."""
    from papa.scores.intervals import Measured

    with reading(address):
        seeds = [seed for part in parts for seed in zip(*part, strict=True)]
        scores = {scored.seed: scored.score for scored, _ in seeds}
        return Measured.of(metric, scores, [examples for _, examples in seeds])


def _read(
    read: Callable[[Path], _Document],
    steps: Iterable[Step],
    found: Mapping[Step, ArtifactReference],
) -> dict[Step, _Document]:
    """What steps made, each read once."""
    distinct = list(dict.fromkeys(steps))
    folders = in_threads(lambda step: read(found[step].folder), distinct, _FETCHED_AT_ONCE)
    return dict(zip(distinct, folders, strict=True))


def in_threads(
    function: Callable[[_Of], _Found], values: Iterable[_Of], threads: int
) -> Iterator[_Found]:
    """``function`` of each value, in their order; after an error no further one is begun."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(function, values)
    finally:
        executor.shutdown(cancel_futures=True)


def found_orders(
    cells: Iterable[ProbedCell], found: Mapping[Step, ArtifactReference]
) -> dict[tuple[str, str], dict[str, FoundOrder]]:
    """The orders of the cells in which some heads are constant and others not, by (encoder label,
    task), then by name. What one ranking took, or a probe that several read, counts for the first
    order that follows it.
    """
    from papa.reporting.orders import FoundOrder

    orders: dict[tuple[str, str], dict[str, FoundOrder]] = {}
    counted: dict[tuple[str, str], set[Step]] = {}
    for cell, probes in ((probed.cell, probed.probes) for probed in cells):
        known, first = orders.setdefault((cell.encoder, cell.task), {}), probes[0]
        if cell.order in known or not 0 < first.count < first.encoder.layers * first.encoder.heads:
            continue
        by_seed = {
            seed: order
            for probe, order in ((probe, probe.ranked(found)) for probe in probes)
            for seed in probe.seeds
        }
        before = counted.setdefault((cell.encoder, cell.task), set())
        rankings = set[Step](first.rankings.values())
        frozen = {step.probe for step in rankings if isinstance(step, ScoreHeads) and step.probe}
        took = {step: read_metadata(found[step].path) for step in (rankings | frozen) - before}
        before |= rankings | frozen
        scored = [_evaluations(took[step], cell.order) for step in took if step in rankings]
        known[cell.order] = FoundOrder(
            by_seed,
            sum(step["worker_seconds"] for step in took.values()) if took else None,
            sum(scored) if scored else None,
        )
    return orders


def _evaluations(ranking: Mapping[str, Any], order: str) -> int:
    return ranking["epochs"] if needs_lambda(order) else ranking["evaluations"][scored_by(order)]


def cached_cells(
    cells: Iterable[ProbedCell], found: Mapping[Step, ArtifactReference], study: StudySpec
) -> list[CachedCell]:
    """Those of decoders with constant heads; ``found`` holds the artifacts of their scores."""
    from papa.reporting.cache import CachedCell

    kinds = {constants.label: constants for constants in study.constants}
    tokens = {task.name: task.most_slots for task in study.tasks}
    return [
        CachedCell(
            probed.cell,
            kinds[probed.cell.constants],
            [read_scores(found[probe].folder).constant_heads for probe in probed.probes],
            encoder.heads // encoder.key_heads,
            encoder.layers * encoder.key_heads,
            tokens[probed.cell.task],
        )
        for probed in cells
        if (encoder := probed.probes[0].encoder).key_heads and probed.probes[0].count
    ]
