"""What of a study a store holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from papa.study.aggregate import earlier_results
from papa.study.inputs import StudyInputs, check_inputs
from papa.study.step import Step
from papa.study.steps import StudySteps, study_steps
from papa.study.store import Store


class StoredStudy:
    """A study, and which of its steps are finished; ``code`` are files of the user's own, which
    only those that are not finished need.
    """

    def __init__(self, study: StudySpec, store: Store, code: Sequence[Path] = ()) -> None:
        self.inputs: StudyInputs = check_inputs(study, code=code)
        self.steps: StudySteps = study_steps(self.inputs)
        self.store = store

    @cached_property
    def found(self) -> dict[Step, ArtifactReference]:
        """The artifact of every finished step."""
        return {
            step: step.reference(self.store)
            for step in self.steps.steps
            if step.is_complete(self.store)
        }

    def nothing_found(self) -> str:
        """Why none of its steps is finished, and what to do."""
        name = self.inputs.study.name
        if folder := earlier_results(self.store, name):
            return (
                f"study '{name}' was finished in this store by an earlier version of PAPA, whose "
                f"steps this one does not read: its results stay in {folder}; run 'papa run' on it "
                "to make them anew"
            )
        return (
            f"study '{name}' as it is here has not been run in this store: run 'papa run' on it "
            "first, or give its --store"
        )

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return all(step in self.found for step in self.steps.cells[cell])

    def summary(self, cells: Iterable[Cell]) -> Any:
        """The summary of finished cells, as the report has it; those with baselines alone."""
        from pandas import DataFrame

        from papa.scores.columns import SUMMARY_COLUMNS
        from papa.scores.summary import summarise

        results = self.results(cells)
        return DataFrame(columns=list(SUMMARY_COLUMNS)) if results.empty else summarise(results)

    def results(self, cells: Iterable[Cell]) -> Any:
        """The rows of ``results.parquet`` of finished cells; of those with baselines alone."""
        from papa.study.results import results_table

        wanted = set(cells)
        parts = [
            replace(part, cells={cell: part.cells[cell] for cell in part.cells if cell in wanted})
            for part in self.steps.parts
            # A model's own head has no baseline.
            if part.baseline is None or part.baseline in self.found
        ]
        return results_table(parts, self.found)

    @property
    def cells(self) -> list[Cell]:
        """The finished cells."""
        return [cell for cell in self.steps.cells if self.has(cell)]
