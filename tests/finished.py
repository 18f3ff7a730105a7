"""A finished study, for tests of what reads it: made in this process, without Prefect and Ray."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from flows.studies import save_study
from papa.spec.file import load_study
from papa.study.here import run_here
from papa.study.inputs import check_inputs
from papa.study.steps import study_steps
from papa.study.store import Store
from tasks.mlflow import tracking_address
from tasks.track import tracked_steps
from tests.study.told import Told


def finish_study(
    file: str, store: Path, *overrides: str, tracked: bool = False, code: Sequence[Path] = ()
) -> Told:
    """What ``papa run`` leaves of a study in its file, without the records of Prefect and, unless
    ``tracked``, of MLflow; which steps it ran and which were damaged.
    """
    spec, place, told = load_study(Path(file), overrides), Store(store), Told()
    place.make()
    inputs = check_inputs(spec, code=code)
    found = {"code": inputs.study.code, "scores": inputs.study.scores}
    save_study(place, spec.model_copy(update=found))
    steps = tracked_steps(inputs, tracking_address(place)) if tracked else study_steps(inputs)
    run_here(steps.steps, place, spec.execution, told)
    return told


def main() -> None:
    """``finish_study`` in a process of its own, where its environment is what matters."""
    file, store, *overrides = sys.argv[1:]
    finish_study(file, Path(store), *overrides)
