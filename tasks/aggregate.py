"""A study gets its results."""

from __future__ import annotations

import base64
import re

import httpx
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from papa.reporting.tables import summary_markdown
from papa.scores.summary import read_table
from papa.study.manifest import place_results
from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def aggregate(step: Step, run: StudyRun) -> bool:
    """Write a study's table, figures and report, and put them where people look for them.

    In: the artifacts of all its steps. Out: results.parquet, summary.csv, figures, report.html; in
    Prefect and MLflow the report. Where: the driver's machine.
    """
    made, store, study = run.compute(step), run.session.store, run.tracking.study.name
    artifact, folder = step.reference(store), store.study(study)
    place_results(store, study, artifact)
    run.tracking.results(artifact)
    # A data URI: Prefect's pages show no other address that every reader reaches.
    image = base64.b64encode((folder / "scores.png").read_bytes()).decode()
    where = " · ".join(filter(None, (f"`{folder}/report.html`", run.tracking.link)))
    table = summary_markdown(read_table(folder / "summary.csv"))
    text = f"# {study}\n\n{where}\n\n{table}\n![Scores](data:image/png;base64,{image})\n"
    try:
        create_markdown_artifact(text, re.sub("[^a-z0-9]+", "-", f"papa-{study}-report".lower()))
    except (httpx.HTTPError, RuntimeError) as error:
        # The study is finished all the same.
        get_run_logger().warning("Prefect's server took no report: %s", error)
    return made
