"""The head orders that a study's cells followed, and what finding them took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from papa.spec.orders import needs_lambda, scored_by
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.study.results import ProbedCell
from papa.study.score_heads import ScoreHeads
from papa.study.step import Step

if TYPE_CHECKING:
    from papa.reporting.orders import FoundOrder


def found_orders(
    cells: Iterable[ProbedCell], found: Mapping[Step, ArtifactReference]
) -> dict[tuple[str, str], dict[str, FoundOrder]]:
    """The orders of the cells in which some heads are constant and others not, by (encoder label,
    task), then by name. What one ranking took, or a probe that several read, counts for the first
    order that follows it.

    Args:
        cells: of a study.
        found: the artifacts of its rankings, among others.
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
