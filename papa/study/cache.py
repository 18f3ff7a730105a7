"""The cells of decoders whose constant heads need no cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference
from papa.study.probe import read_scores
from papa.study.results import ProbedCell
from papa.study.step import Step

if TYPE_CHECKING:
    from papa.reporting.cache import CachedCell


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
