"""What of a study a store holds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from flows.build import tracked_steps
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from papa.study.baseline import Baseline
from papa.study.inputs import StudyInputs, check_inputs
from papa.study.step import Step
from papa.study.steps import StudySteps
from papa.study.store import Store
from tasks.mlflow_client import tracking_address


class StoredStudy:
    """A study, and which of its steps are finished.

    Attributes:
        inputs: its encoders and sources.
        steps: its steps and cells.

    Raises:
        CheckError: an encoder or a source is missing or unfit.
    """

    def __init__(self, study: StudySpec, store: Store) -> None:
        self.inputs: StudyInputs = check_inputs(study)
        self.steps: StudySteps = tracked_steps(self.inputs, tracking_address(store))
        self.store = store

    @cached_property
    def found(self) -> dict[Step, ArtifactReference]:
        """The artifact of every finished step."""
        return {step: step.reference(self.store) for step in self.steps.steps if step.is_complete(self.store)}

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return all(step in self.found for step in self.steps.cells[cell])

    def summary(self, cells: Iterable[Cell]) -> Any:
        """The summary of finished cells, as the report has it; without those whose baselines are not finished."""
        from pandas import DataFrame

        from papa.reporting.columns import SUMMARY_COLUMNS
        from papa.reporting.summary import summarise
        from papa.study.results import ScoredCell, results_table

        label = self.inputs.encoder_label
        baselines = {
            (label(step.encoder), step.task.name): found
            for step, found in self.found.items()
            if isinstance(step, Baseline)
        }
        scored = []
        for cell in cells:
            if (cell.encoder, cell.task) in baselines:
                steps = self.steps.cells[cell]
                scored.append(ScoredCell(cell, steps[0].task.metric, tuple(self.found[step] for step in steps)))
        if not scored:
            return DataFrame(columns=list(SUMMARY_COLUMNS))
        used = {(one.cell.encoder, one.cell.task) for one in scored}
        return summarise(results_table(scored, {key: found for key, found in baselines.items() if key in used}))

    @property
    def cells(self) -> list[Cell]:
        """The finished cells."""
        return [cell for cell in self.steps.cells if self.has(cell)]
