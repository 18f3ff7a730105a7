"""Serve Prefect's API and pages on a socket that listens already, until standard input ends; or end
at once if Prefect's settings name a server.

``papa.flows.server`` starts this module, and keeps the socket too: no other account can take its
port. What it reads on standard output are bytes of ``Answer``.
"""

import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from papa.flows.server import OWN_SETTINGS, Answer
from papa.garbage import uncollected


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _is_needed() -> bool:
    """Return whether Prefect's settings name no server; then take those of the study's own, with
    the user's own database.
    """
    # Prefect takes a second to import, in which the study may end.
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    if PREFECT_API_URL.value():
        return False
    os.environ |= json.loads(os.environ.pop(OWN_SETTINGS))
    database = f"sqlite+aiosqlite:///{PREFECT_HOME.value()}/prefect.db"
    os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
    os.environ.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)
    refresh_global_settings_context()
    return True


def _tell(output: int, answer: Answer) -> None:
    # Nobody reads it if the study has ended meanwhile.
    with suppress(BrokenPipeError):
        os.write(output, answer.value)


def main() -> None:
    """Serve on the socket whose descriptor is the first argument."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    # What else is printed goes to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    with uncollected():
        if not _is_needed():
            _tell(output, Answer.NAMED)
            return
        _tell(output, Answer.OWN)
        from papa.flows.api_server import serve
    serve(socket.socket(fileno=int(sys.argv[1])), lambda: _tell(output, Answer.READY))


if __name__ == "__main__":
    main()
