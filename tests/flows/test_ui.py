"""``papa ui``: both pages on a store, used by a run meanwhile, and nothing left of it."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from papa.processes import start_of
from tests.flows.conftest import SMALL, papa, start, words, write_study
from tests.flows.history import flow_runs
from tests.flows.processes import PATIENCE_SECONDS, descendants, is_loopback, listening

pytestmark = pytest.mark.server

ONE_CELL = SMALL | {"orders": ["first_to_last"], "fractions": [1, 0], "seeds": [0]}


class Pages:
    """A ``papa ui`` that has printed its links.

    Attributes:
        printed: what it printed.
        pid: its process.
    """

    def __init__(self, printed: str, pid: int) -> None:
        self.printed, self.pid = printed, pid

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
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C ends both" not in printed:
            line = process.stdout.readline()
            assert line, process.communicate()
            printed += line
        below = {pid: start_of(pid) for pid in descendants(process.pid)}
        try:
            yield Pages(printed, process.pid)
        finally:
            os.kill(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert below
    assert all(start_of(pid) != started for pid, started in below.items()), "it left a process behind"


def status(link: str) -> int:
    """What a browser's request for a link is answered with."""
    request = urllib.request.Request(link, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_run_uses_the_pages_server_and_is_found_there_later(tmp_path: Path) -> None:
    store, study = tmp_path / "store", write_study(tmp_path, ONE_CELL)
    with pages(store) as shown:
        assert all(is_loopback(address) for address in listening({shown.pid, *descendants(shown.pid)}))
        log = store / "prefect" / "server.log"
        before = log.stat()
        finished = papa("run", study, "--store", str(store))
        assert finished.code == 0, finished.err
        assert log.stat().st_mtime_ns == before.st_mtime_ns, "a server of its own would write a new log"
        (run,) = flow_runs(store, f"{shown.prefect}/api")
        assert run.state == "Completed"
        second = papa("ui", "--store", str(store))
        assert second.code == 1
        (line,) = words(second)
        assert shown.prefect in line
        assert "runs on" in line
    assert not (store / "prefect" / "server.json").exists()

    with pages(store) as shown:
        assert "small" in shown.printed
        for label in ("Prefect", "MLflow", "last run", "scores"):
            assert status(shown.link(label)) == 200
        assert status(f"{shown.prefect}/api/nothing") == 404
        last = shown.link("last run").rpartition("/")[2]
        assert status(f"{shown.prefect}/api/flow_runs/{last}") == 200
