"""A study gets its results."""

from __future__ import annotations

from papa.study.manifest import place_results
from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def aggregate(step: Step, run: StudyRun) -> bool:
    """Write a study's table, figures and report, and put them where people look for them.

    In: the artifacts of all its steps. Out: results.parquet, summary.csv, figures, report.html.
    Where: the driver's machine.
    """
    made, store = run.compute(step), run.session.store
    found = step.reference(store)
    place_results(store, run.tracking.study.name, found)
    run.tracking.results(found)
    return made
