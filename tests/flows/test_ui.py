"""``papa ui``: both pages on a store, used by a run meanwhile, and nothing left of it; our servers
answer this machine's programs and their own pages, and no page from elsewhere.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from papa.processes import start_of
from tests.flows.conftest import TINY, Finished, known, papa, refusal, start, until, write_study
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
            hanging = threading.Timer(PATIENCE_SECONDS, process.kill)
            hanging.start()
            _, errors = process.communicate()
            hanging.cancel()
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


@pytest.fixture(scope="module")
def store(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a study ran while its pages were shown."""
    folder = tmp_path_factory.mktemp("ui")
    store, study = folder / "store", known(write_study(folder, ONE_CELL | {"encoders": [shallow]}))
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
        assert shows_a_line(chart, folder / "chromium")
        assert log.stat().st_mtime_ns == before.st_mtime_ns, (
            "a server of its own would write a new log"
        )
        (run,) = flow_runs(store, f"{shown.prefect}/api")
        assert run.state == "Completed"
        second = papa("ui", "--store", str(store))
        line = refusal(second)
        assert shown.prefect in line
        assert "runs on" in line
    return store


@pytest.fixture(scope="module")
def later(store: Path) -> Iterator[Pages]:
    """The pages of the store after that."""
    assert not (store / "prefect" / "server.json").exists()
    assert not list(store.rglob("*.js")), (
        "whoever may write to the store would write the pages of others"
    )
    with pages(store) as shown:
        yield shown


def test_a_run_uses_the_pages_server_and_is_found_there_later(later: Pages) -> None:
    assert "small" in later.printed
    for label in ("Prefect", "MLflow", "last run", "scores"):
        assert status(later.link(label)) == 200
    assert status(f"{later.prefect}/api/nothing") == 404
    last = later.link("last run").rpartition("/")[2]
    assert status(f"{later.prefect}/api/flow_runs/{last}") == 200


def asked(port: int, path: str, **headers: str) -> tuple[int, str | None]:
    """The status of a request with these headers, and the origin that may read the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("access-control-allow-origin")
    finally:
        connection.close()


def keeps_strangers_out(port: int, path: str) -> None:
    """It answers whoever calls it by a name of this machine and shows no page of another's."""
    refused = (http.client.FORBIDDEN, None)
    for host in (
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"[::1]:{port}",
    ):
        assert asked(port, path, Host=host) == (200, None)
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"localhost.evil.example:{port}",
        "10.evil.example",
        "",
    ):
        assert asked(port, path, Host=host) == refused, host
    for own in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        code, reader = asked(port, path, Origin=own)
        assert code == 200
        assert reader in (None, own)
    # Through a tunnel the page has another port, and so has the Host of what it asks.
    assert asked(port, path, Host="localhost:8080", Origin="http://localhost:8080")[0] == 200
    elsewhere = (
        "https://evil.example",
        f"http://evil.example:{port}",
        "http://localhost:1",
        f"https://localhost:{port}",
    )
    for origin in (*elsewhere, "null", ""):
        assert asked(port, path, Origin=origin) == refused, origin


def keeps_strangers_from_events(port: int) -> None:
    """Prefect's events come over a WebSocket, which no rule of browsers keeps from pages
    of others.
    """
    address = f"ws://127.0.0.1:{port}/api/events/in"
    with connect(address), connect(address, origin=f"http://localhost:{port}"):  # type: ignore[arg-type]
        pass
    with pytest.raises(InvalidStatus), connect(address, origin="https://evil.example"):  # type: ignore[arg-type]
        pass


def test_a_runs_own_server_keeps_strangers_out(prefect: dict[str, str]) -> None:
    port = int(prefect.split("/")[2].partition(":")[2])
    keeps_strangers_out(port, "/api/admin/version")
    keeps_strangers_from_events(port)


def test_both_pages_keep_strangers_out(later: Pages) -> None:
    prefect, mlflow = (
        int(later.link(name).split("/")[2].partition(":")[2]) for name in ("Prefect", "MLflow")
    )
    keeps_strangers_out(prefect, "/api/admin/version")
    keeps_strangers_from_events(prefect)
    keeps_strangers_out(mlflow, "/version")
    keeps_strangers_out(mlflow, "/ajax-api/2.0/mlflow/experiments/get?experiment_id=0")
