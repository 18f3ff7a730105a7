"""Prefect's server: the one that ``PREFECT_API_URL`` names, checked first, or one that a study starts.

The latter listens on loopback alone, logs into the store, and ends with the study: as the process exits, and, where
that is killed, by the signal that the kernel sends its children (Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from papa.errors import PapaError, TransientError
from tasks.mlflow_client import without_password
from tasks.store import Store

_HOST = "127.0.0.1"
_START_SECONDS = 90.0
_END_SECONDS = 5.0
_REQUEST_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1
_UNUSED_SERVICES = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
    "TRIGGERS",
)


@dataclass(frozen=True)
class OwnServer:
    """A server that is starting or runs.

    Attributes:
        process: it.
        port: where it listens.
        log: what it prints.
        starting: held until it answers, as two servers would both create the tables of a new database.
        unmade: there until it answers for the first time: its database lacks tables.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    starting: FileLock
    unmade: Path

    def wait(self) -> None:
        """Return once it answers.

        Raises:
            PapaError: it ended, or did not answer in time.
        """
        connection = http.client.HTTPConnection(_HOST, self.port, timeout=_START_SECONDS)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read()
            self.unmade.unlink(missing_ok=True)
        except (OSError, http.client.HTTPException):
            raise PapaError(f"Prefect's server did not start: {self.log} says why") from None
        finally:
            connection.close()
            self.starting.release()

    def end(self) -> None:
        """End it: politely, then for good."""
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_own_server(store: Store) -> OwnServer:
    """Start a server with its database in the store; it ends with this process.

    To be called from the main thread, before Prefect is imported: so Prefect finds its address, and has sent what
    it had to send when the server ends.
    """
    store.prefect.mkdir(parents=True, exist_ok=True)
    store.locks.mkdir(parents=True, exist_ok=True)
    starting = FileLock(store.locks / "prefect-server.lock")
    starting.acquire()
    log = store.prefect / "server.log"
    unmade = mark_unmade(store.prefect / "prefect.db")
    unused = {f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in _UNUSED_SERVICES}
    database = {"PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{store.prefect / 'prefect.db'}"}
    with socket.socket() as door, log.open("wb") as output:
        door.bind((_HOST, 0))
        door.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(door.fileno()), str(os.getpid())],
            env={**os.environ, **unused, **database},
            pass_fds=[door.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        server = OwnServer(process, door.getsockname()[1], log, starting, unmade)
    atexit.register(server.end)
    os.environ["PREFECT_API_URL"] = f"http://{_HOST}:{server.port}/api"
    return server


def mark_unmade(database: Path) -> Path:
    """A mark beside a database that has yet to be made; what a killed server left unmade is removed, as none could use
    it."""
    mark = database.with_name(f"{database.name}.unmade")
    if mark.exists():
        for file in (database, *database.parent.glob(f"{database.name}-*")):
            file.unlink(missing_ok=True)
    if not database.exists():
        mark.touch()
    return mark


def _serve(door: int, parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(create_app(ephemeral=True, final=True), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=door)])


def check_server() -> None:
    """Make sure that the Prefect server answers, takes the credentials and is of a version that fits.

    Raises:
        PapaError: it refuses the credentials.
        TransientError: it does not answer, or not as a server that this Prefect can use.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES
    from prefect.settings.context import temporary_settings

    address = without_password(PREFECT_API_URL.value())
    try:
        with (
            temporary_settings({PREFECT_API_REQUEST_TIMEOUT: _REQUEST_SECONDS, PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(sync_client=True) as client,
        ):
            client.raise_for_api_version_mismatch()
    except PrefectHTTPStatusError as error:
        raise PapaError(
            f"Prefect at {address} refuses the credentials (status {error.response.status_code}): "
            "set PREFECT_API_AUTH_STRING to its user:password"
        ) from None
    except RuntimeError as error:
        found = "does not answer" if error.__cause__ else f"cannot be used ({str(error).rstrip('.')})"
        raise TransientError(
            f"Prefect at {address} {found}: start a server there, or unset PREFECT_API_URL and papa starts its own"
        ) from None


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
