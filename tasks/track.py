"""Stage ``track``: a study's scores as MLflow runs; and its results, read back from there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from papa.progress import Progress
from papa.spec import StudySpec
from papa.storage.artifacts import published, sha256_of_file, verify
from papa.study.results import ProbedCell, cells_in_key, probes_of
from papa.study.step import Session, Step
from papa.study.store import Store
from tasks.mlflow_client import TrackingError, connect, database_of, tracking_errors, without_password
from tasks.mlflow_parents import ProbedParent
from tasks.mlflow_results import LOGGED, RESULTS, RESULTS_SHA256, RunLogger
from tasks.mlflow_runs import PARENT, ROLE

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

RUNS = "runs.json"
PAGE = "workflowType=machine_learning"
"""Without it MLflow takes experiments for language model applications and shows other pages."""
_CURVES_SHOWN = 100
"""On one page: more lines are not told apart."""
_DEFAULT = "Default"
"""The experiment that every MLflow has."""


@dataclass(frozen=True, eq=False)
class Track(Step):
    """Log a study to MLflow.

    Attributes:
        study: the resolved specification.
        results: the study's results.
        parents: its parent runs; their cells are all of the study's.
        address: MLflow's tracking URI.
    """

    stage: ClassVar[str] = "track"
    version: ClassVar[int] = 3

    study: StudySpec
    results: Step
    parents: tuple[ProbedParent, ...]
    address: str

    def spec(self) -> dict[str, Any]:
        counts = [len(cells_in_key(parent.cells)) for parent in self.parents]
        ends = list(accumulate(counts))
        return {
            "study": self.study.model_dump(mode="json", exclude={"execution"}),
            "address": without_password(self.address),
            "points": cells_in_key(self._cells),
            "groups": [
                {
                    "parameters": parent.parent.parameters(self.study),
                    "texts": [text.document() for text in parent.parent.texts],
                    "points": [end - count, end],
                    "constants": list(parent.constants),
                    "rankings": list(parent.rankings),
                }
                for parent, count, end in zip(self.parents, counts, ends, strict=True)
            ],
        }

    def inputs(self) -> dict[str, Step]:
        kept = {f"{one.parent.name} {number}": step for one in self.parents for number, step in enumerate(one.inputs())}
        return {"results": self.results, **probes_of(self._cells), **kept}

    @property
    def _cells(self) -> list[ProbedCell]:
        return [cell for parent in self.parents for cell in parent.cells]

    def is_complete(self, store: Store) -> bool:
        database = database_of(self.address)
        return super().is_complete(store) and (database is None or database.is_file())

    def run(self, session: Session, progress: Progress) -> None:
        found = self.found(session.store)
        parents = [one.scored(found) for one in self.parents]
        with published(self.folder(session.store), self.metadata(found)) as scratch, tracking_errors(self.address):
            client = connect(self.address)
            logger = RunLogger(client, session.store, self.study, found[self.results])
            logged = logger.log(parents, progress)
            curves = curves_of(client, logged["experiment_id"])
            document = {"address": without_password(self.address), **logged, "curves": curves}
            (scratch / RUNS).write_text(json.dumps(document, indent=1) + "\n")


def logged_runs(folder: Path) -> dict[str, Any]:
    """The runs of a finished study, as ``runs.json`` of its artifact holds them.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    verify(folder, RUNS)
    document: dict[str, Any] = json.loads((folder / RUNS).read_text())
    return document


def page_link(document: Mapping[str, Any]) -> str:
    """Where a browser shows a study's ``report.html``: among the files of its first parent run.

    Args:
        document: as ``runs.json`` holds it.

    Returns:
        "" for a SQLite file, as for ``run_links``.
    """
    pages = list(run_links(document).values())[1:]
    return f"{pages[0].removesuffix(f'?{PAGE}')}/artifactPath/{RESULTS}/report.html?{PAGE}" if pages else ""


def run_links(document: Mapping[str, Any]) -> dict[str, str]:
    """Where a browser shows a study's runs.

    Args:
        document: as ``runs.json`` holds it.

    Returns:
        The chart of the study's curves under its name, or its runs where the document names no curves; then the
        page of each parent run under the run's name. Empty for a SQLite file, which has no pages until ``mlflow ui``
        serves it.
    """
    if database_of(document["address"]) is not None:
        return {}
    server, number = _server(document["address"]), document["experiment_id"]
    experiment = f"{server}/#/experiments/{number}/runs"
    runs = {name: f"{experiment}/{run}?{PAGE}" for name, run in document["parents"].items()}
    curves = json.dumps(document.get("curves", [])[:_CURVES_SHOWN], separators=(",", ":"))
    # MLflow's page of a metric takes its parameters in this order alone. The step is the fraction.
    lines = {"metric": '"score"', "experiments": f'["{number}"]', "plot_metric_keys": '["score"]', "x_axis": "step"}
    chart = f"{server}/#/metric?{urlencode({'runs': curves, **lines, 'show_point': 'true'}, quote_via=quote)}&{PAGE}"
    return {document["experiment"]: f"{experiment}?{PAGE}" if curves == "[]" else chart, **runs}


def curves_of(client: MlflowClient, experiment: str) -> list[str]:
    """The runs of a study's curves, newest first.

    Args:
        client: of the MLflow that has them.
        experiment: the id of the study's experiment.
    """
    found = client.search_runs([experiment], f"tags.`{ROLE}` = 'curve'", max_results=_CURVES_SHOWN)
    return [run.info.run_id for run in found]


def live_link(address: str, experiment: str) -> str:
    """Where a browser shows the runs of a study that is not finished; "" for a SQLite file.

    Args:
        address: MLflow's tracking URI.
        experiment: the id of the study's experiment.
    """
    return "" if database_of(address) is not None else f"{_server(address)}/#/experiments/{experiment}/runs?{PAGE}"


def _server(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def logged_results(address: str, studies: list[str]) -> dict[str, Any]:
    """The results of studies as they were logged last; nothing but MLflow is asked.

    Args:
        address: MLflow's tracking URI.
        studies: their names.

    Returns:
        A pandas frame a study, with the columns of ``results.parquet``.

    Raises:
        TrackingError: a study is not there or has no results, or MLflow refuses.
        TransientError: the server cannot be reached.
    """
    database = database_of(address)
    if database is not None and not database.is_file():
        raise TrackingError(f"there is no MLflow database {database}: run a study first, or set MLFLOW_TRACKING_URI")
    client = connect(address)
    with tracking_errors(address):
        return {name: _results(client, _experiment(client, name, address)) for name in studies}


def _experiment(client: MlflowClient, name: str, address: str) -> Experiment:
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "active":
        return found
    known = sorted(one.name for one in client.search_experiments() if one.name != _DEFAULT)
    raise TrackingError(
        f"MLflow at {without_password(address)} knows no study '{name}': "
        + (f"it has {', '.join(known)}" if known else "it has none yet, so run one first")
    )


def _results(client: MlflowClient, experiment: Experiment) -> Any:
    """The table that the last logging attached to each of its parent runs."""
    import pandas

    # A parent that runs again keeps the results that it got before.
    parents = client.search_runs([experiment.experiment_id], f"tags.`{PARENT}` IS NULL", max_results=1000)
    newest = max(parents, key=_logged_at, default=None)
    file = f"{RESULTS}/results.parquet"
    if (
        newest is None
        or not _logged_at(newest)
        or file not in {one.path for one in client.list_artifacts(newest.info.run_id, RESULTS) if not one.is_dir}
    ):
        raise TrackingError(f"the MLflow experiment '{experiment.name}' holds no finished study: run it to its end")
    expected = newest.data.tags.get(RESULTS_SHA256)
    if expected is None:
        raise TrackingError(
            f"the study '{experiment.name}' in MLflow was logged by an older version of PAPA: "
            "run it again with 'papa run'"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(newest.info.run_id, file, folder))
        found = sha256_of_file(path)
        if found != expected:
            raise TrackingError(
                f"{file} of run {newest.info.run_id} in MLflow is not what study '{experiment.name}' logged (expected "
                f"SHA-256 {expected[:12]}, found {found[:12]}): put studies/{experiment.name}/results.parquet of its "
                "store there"
            )
        return pandas.read_parquet(path)


def _logged_at(run: Run) -> int:
    """When a parent run got its results, in ms; 0 where it has none. Older versions of PAPA did not say."""
    ended = run.info.end_time if run.info.status == "FINISHED" else 0
    return int(run.data.tags.get(LOGGED, ended))
