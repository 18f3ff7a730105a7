"""A finished study, for tests of what reads it: made in this process, without Prefect, Ray or
MLflow.
"""

from __future__ import annotations

from pathlib import Path

from flows.studies import save_study
from papa.library.bars import Bars
from papa.spec.file import load_study
from papa.study.here import run_here
from papa.study.inputs import check_inputs
from papa.study.steps import study_steps
from papa.study.store import Store


def finish_study(file: str, store: Path) -> None:
    """What ``papa run`` leaves of a study in its file, without the records of Prefect
    and MLflow.
    """
    spec, place = load_study(Path(file)), Store(store)
    place.make()
    save_study(place, spec)
    run_here(study_steps(check_inputs(spec)).steps, place, spec.execution, Bars(shown=False))
