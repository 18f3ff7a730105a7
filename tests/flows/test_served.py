"""An application that is lost is started again where it was; where it cannot be, clients know at
once.
"""

from __future__ import annotations

import http.client
import os
import queue
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.served import Served
from tests.flows.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.server

APPLICATION = """
import os
from pathlib import Path
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

def make(address):
    if Path(__file__).with_name("forbidden").exists():
        raise SystemExit("it is forbidden")
    return Starlette(routes=[Route("/", lambda _: PlainTextResponse(str(os.getpid())))])
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An application that answers with its process's id."""
    (tmp_path / "application.py").write_text(APPLICATION)
    one = Served("It", "application:make", "/", tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    one.wait()
    yield one
    one.end()


def asked(served: Served) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_what_is_killed_is_started_again_and_requests_wait_for_it(served: Served) -> None:
    told: queue.Queue[str] = queue.Queue()
    served.lost = told.put
    pids = [served.process.pid]
    for _ in range(2):
        os.kill(pids[-1], signal.SIGKILL)
        assert told.get(timeout=PATIENCE_SECONDS) == "is started again"
        status, text = asked(served)
        assert status == 200
        # Its keeper counts a life as one in vain until it has seen an answer itself.
        served.wait()
        pids.append(int(text))
    assert len(set(pids)) == 3
    served.end()
    assert told.empty()
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", served.port)),
    ):
        pass


def test_what_cannot_be_started_again_refuses_at_once(served: Served) -> None:
    told: queue.Queue[str] = queue.Queue()
    served.lost = told.put
    (served.log.parent / "forbidden").touch()
    os.kill(served.process.pid, signal.SIGKILL)
    assert told.get(timeout=PATIENCE_SECONDS) == "is started again"
    assert told.get(timeout=PATIENCE_SECONDS) == f"cannot be started again ({served.log} says why)"
    assert asked(served)[0] == http.client.GONE
    assert os.get_blocking(served._listening.fileno()), "it waits for who asks"
    assert "it is forbidden" in served.log.read_text()
    assert told.empty()
