"""A study's steps with, last, the one that logs it to MLflow."""

from __future__ import annotations

from dataclasses import replace

from papa.study import costs
from papa.study.inputs import StudyInputs
from papa.study.steps import StudyPart, StudySteps, study_steps
from tasks.mlflow_parents import ParentRun, ProbedParent
from tasks.mlflow_texts import texts_of
from tasks.track import Track


def tracked_steps(inputs: StudyInputs, address: str) -> StudySteps:
    """The steps of a study; the last two are the aggregation and the tracking.

    Args:
        inputs: the study, its encoders and the content of its sources.
        address: where MLflow keeps its runs.
    """
    found, study = study_steps(inputs), inputs.study
    parents = tuple(
        ProbedParent(_parent(part, inputs), part.cells, part.constants, part.rankings) for part in found.parts
    )
    flops = costs.tracking_flops(len(found.cells) * len(study.seeds))
    track = Track(f"track · {study.name}", flops, study, found.steps[-1], parents, address)
    return replace(found, steps=(*found.steps, track))


def _parent(part: StudyPart, inputs: StudyInputs) -> ParentRun:
    """The run that holds one encoder on one task."""
    texts = texts_of(inputs.study, part.task, inputs.fingerprint, ranked=bool(part.rankings))
    return ParentRun(part.encoder_label, part.encoder, part.task, texts)
