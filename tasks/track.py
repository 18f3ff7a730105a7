"""Stage ``track``: a study's scores as MLflow runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit, urlunsplit

from papa.progress import Progress
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, published
from tasks.mlflow_client import connect, database_of, tracking_errors, without_password
from tasks.mlflow_groups import Group
from tasks.mlflow_runs import PARENT, RunLogger
from tasks.results import Point
from tasks.step import Session, Step
from tasks.store import Store

RUNS = "runs.json"
PAGE = "workflowType=machine_learning"
"""Without it MLflow takes experiments for language model applications and shows other pages."""
CHARTS = f"{PAGE}&compareRunsMode=CHART&searchFilter={quote(f'tags.`{PARENT}` IS NULL')}"
"""Parent runs alone: MLflow loads a hundred runs at a time, and one encoder's cells may be more."""


@dataclass(frozen=True)
class Track(Step):
    """Log a study to MLflow.

    Attributes:
        study: the resolved specification.
        results: the study's results.
        points: every combination.
        groups: its parent runs.
        address: MLflow's tracking URI.
    """

    stage: ClassVar[str] = "track"
    version: ClassVar[int] = 1

    study: StudySpec
    results: ArtifactReference
    points: tuple[Point, ...]
    groups: tuple[Group, ...]
    address: str

    def spec(self) -> dict[str, Any]:
        return {
            "study": self.study.model_dump(mode="json", exclude={"execution"}),
            "address": without_password(self.address),
            "points": [point.combination() for point in self.points],
            "groups": [group.read(self.study) for group in self.groups],
        }

    def upstream(self) -> dict[str, str | None]:
        scores = {str(number): point.scores.digest for number, point in enumerate(self.points)}
        kept = {
            f"{group.name} {number}": one.digest for group in self.groups for number, one in enumerate(group.artifacts)
        }
        return {"results": self.results.digest, **scores, **kept}

    def is_complete(self, store: Store) -> bool:
        database = database_of(self.address)
        return super().is_complete(store) and (database is None or database.is_file())

    def run(self, session: Session, progress: Progress) -> None:
        with published(self.folder(session.store), self.metadata()) as scratch, tracking_errors(self.address):
            client = connect(self.address)
            logger = RunLogger(client, session.store, self.study, self.results, self.points)
            document = {"address": without_password(self.address), **logger.log(self.groups, progress)}
            (scratch / RUNS).write_text(json.dumps(document, indent=1) + "\n")


def run_links(document: Mapping[str, Any]) -> dict[str, str]:
    """Where a browser shows a study's runs.

    Args:
        document: as ``runs.json`` holds it.

    Returns:
        The charts of the experiment under the study's name, then the page of each parent run under the run's
        name; empty for a SQLite file, which has no pages until ``mlflow ui`` serves it.
    """
    parts = urlsplit(document["address"])
    if parts.scheme not in ("http", "https"):
        return {}
    server = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    experiment = f"{server}/#/experiments/{document['experiment_id']}"
    runs = {name: f"{experiment}/runs/{run}?{PAGE}" for name, run in document["parents"].items()}
    return {document["experiment"]: f"{experiment}/runs?{CHARTS}", **runs}
