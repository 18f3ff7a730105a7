"""``papa ui``: both pages on a store, used by a run meanwhile, and nothing left of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from papa.processes import start_of
from tests.flows.conftest import TINY, Finished, papa, refusal, start, until, write_study
from tests.flows.history import flow_runs
from tests.flows.processes import PATIENCE_SECONDS, descendants, is_loopback, listening
from tests.reporting.browser import chromium

pytestmark = pytest.mark.server

ONE_CELL = TINY | {"orders": ["first_to_last"], "fractions": [1, 0]}


@dataclass(frozen=True)
class Pages:
    """What a ``papa ui`` printed with its links, and its process."""

    printed: str
    pid: int

    def link(self, label: str) -> str:
        found = re.search(rf"{label}\s+(http://\S+)", self.printed)
        assert found, self.printed
        return found[1]

    @property
    def prefect(self) -> str:
        """Its server."""
        return "/".join(self.link("Prefect").split("/")[:3])


@contextmanager
def pages(store: Path) -> Iterator[Pages]:
    """A ``papa ui``; at the end Ctrl-C ends it and all that it started."""
    with start("ui", "--store", str(store)) as process:
        printed = until(process.stdout, "Ctrl-C ends both")
        below = {pid: start_of(pid) for pid in descendants(process.pid)}
        try:
            yield Pages(printed, process.pid)
        finally:
            os.kill(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert below
    left = [pid for pid, started in below.items() if start_of(pid) == started]
    assert not left, "it left a process behind"


def status(link: str) -> int:
    """What a browser's request for a link is answered with."""
    request = urllib.request.Request(link, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def opens_what_it_says(finished: Finished, server: str) -> str:
    """Every link that a run printed is answered, and names what MLflow has; the address of its
    chart.
    """
    from mlflow import MlflowClient

    links = re.findall(r"http://\S+", finished.out + finished.err)
    assert len(links) == 3, "the study as it starts; its charts and its report at the end"
    assert all(status(link) == 200 for link in links)
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("small").experiment_id
    chart = next(link for link in links if "/#/metric?" in link)
    pages = f"{server}/#/experiments/{experiment}/runs"
    assert all(link.startswith(pages) for link in links if link != chart)
    (report,) = (link for link in links if "/runs/" in link)
    found = re.fullmatch(r".*/runs/(\w+)/artifactPath/(\S+)\?.*", report)
    assert found is not None
    file = f"{server}/get-artifact?run_uuid={found[1]}&path={found[2]}"
    assert status(file) == 200
    assert status(f"{file}.nothing") != 200
    (curve,) = json.loads(parse_qs(chart.partition("?")[2])["runs"][0])
    assert client.get_run(curve).data.tags["order"] == "first_to_last"
    assert {point.step for point in client.get_metric_history(curve, "score")} == {0, 10_000}
    return chart


def shows_a_line(link: str, folder: Path) -> bool:
    """Whether the page draws the score as a line of two points; True where no browser
    is installed.
    """
    if shutil.which("chromium") is None:
        return True
    folder.mkdir()
    with chromium(folder) as page:
        page.driver.get(link)
        page.wait(lambda: page.all(".scatterlayer .point") or page.all(".barlayer .point"))
        line = page.all(".scatterlayer path.js-line")
        return len(page.all(".scatterlayer .point")) == 2 and line != []


def test_a_run_uses_the_pages_server_and_is_found_there_later(tmp_path: Path) -> None:
    store, study = tmp_path / "store", write_study(tmp_path, ONE_CELL)
    with pages(store) as shown:
        assert all(
            is_loopback(address) for address in listening({shown.pid, *descendants(shown.pid)})
        )
        log = store / "prefect" / "server.log"
        before = log.stat()
        server = shown.link("MLflow").split("/#/")[0]
        finished = papa("run", study, "--store", str(store), more={"MLFLOW_TRACKING_URI": server})
        assert finished.code == 0, finished.err
        chart = opens_what_it_says(finished, server)
        assert shows_a_line(chart, tmp_path / "chromium")
        assert log.stat().st_mtime_ns == before.st_mtime_ns, (
            "a server of its own would write a new log"
        )
        (run,) = flow_runs(store, f"{shown.prefect}/api")
        assert run.state == "Completed"
        second = papa("ui", "--store", str(store))
        line = refusal(second)
        assert shown.prefect in line
        assert "runs on" in line
    assert not (store / "prefect" / "server.json").exists()
    assert not list(store.rglob("*.js")), (
        "whoever may write to the store would write the pages of others"
    )

    with pages(store) as shown:
        assert "small" in shown.printed
        for label in ("Prefect", "MLflow", "last run", "scores"):
            assert status(shown.link(label)) == 200
        assert status(f"{shown.prefect}/api/nothing") == 404
        last = shown.link("last run").rpartition("/")[2]
        assert status(f"{shown.prefect}/api/flow_runs/{last}") == 200
