"""The steps of a small study, with some of its settings changed."""

from pathlib import Path

from papa.spec.file import resolve_study
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import Pipeline, build_pipeline
from tests.flows.conftest import SMALL


def steps_of(**changes: object) -> Pipeline:
    study = resolve_study(SMALL | changes, folder=Path(), origin="test")
    return build_pipeline(resolve_inputs(study).inputs())
