"""What of a study a store holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference
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
