"""What of a study a store holds."""

from __future__ import annotations

from functools import cached_property

from flows.build import tracked_steps
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.storage.artifacts import ArtifactReference
from papa.study.inputs import StudyInputs, check_inputs
from papa.study.step import Step
from papa.study.steps import StudySteps
from papa.study.store import Store
from tasks.mlflow_client import tracking_address


class StoredStudy:
    """A study, and which of its steps are finished.

    Args:
        study: the resolved specification.
        store: what is asked.

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

    @property
    def cells(self) -> list[Cell]:
        """The finished cells."""
        return [cell for cell in self.steps.cells if self.has(cell)]
