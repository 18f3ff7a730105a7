"""A study's steps with, last, the one that logs it to MLflow."""

from __future__ import annotations

from dataclasses import replace

from papa.study import costs
from papa.study.inputs import StudyInputs
from papa.study.steps import StudySteps, study_steps
from tasks.track import Track


def tracked_steps(inputs: StudyInputs, address: str) -> StudySteps:
    """The steps of a study; the last two are the aggregation and the tracking.

    Args:
        inputs: the study, its encoders and the content of its sources.
        address: where MLflow keeps its runs.
    """
    found, study = study_steps(inputs), inputs.study
    flops = costs.tracking_flops(len(found.cells) * len(study.seeds))
    track = Track(f"track · {study.name}", flops, study, found.steps[-1], found.parts, address)
    return replace(found, steps=(*found.steps, track))
