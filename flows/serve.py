"""Serve Prefect's API and pages on a socket that listens already, until standard input ends; or end
at once if Prefect's settings name a server.

``papa.flows.server`` starts this module, and keeps the socket too: no other account can take its
port. What it reads on standard output are the bytes of ``StartupMessage``.
"""

import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from papa.errors import in_one_line
from papa.flows.server import SERVER_SETTINGS, StartupMessage
from papa.garbage import uncollected


def _end_with_input(is_ready: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    if not is_ready.is_set():
        os._exit(1)  # While it waits for another server that makes the database it heeds no signal.
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
    os.environ |= json.loads(os.environ.pop(SERVER_SETTINGS))
    database = f"sqlite+aiosqlite:///{PREFECT_HOME.value()}/prefect.db"
    os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
    os.environ.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)
    refresh_global_settings_context()
    return True


def _send(output: int, message: StartupMessage, reason: str = "") -> None:
    # Nobody reads it if the study has ended meanwhile.
    with suppress(BrokenPipeError):
        os.write(output, message.value + reason.encode())


def main() -> None:
    """Serve on the socket whose descriptor is the first argument."""
    is_ready = threading.Event()
    threading.Thread(target=_end_with_input, args=(is_ready,), daemon=True).start()
    # What else is printed goes to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    with uncollected():
        try:
            is_needed = _is_needed()
        except Exception as error:
            # Settings are the user's, who reads what Prefect says of them.
            _send(output, StartupMessage.UNREADABLE, in_one_line(error))
            return
        if not is_needed:
            _send(output, StartupMessage.NAMED)
            return
        _send(output, StartupMessage.STARTING)
        from papa.flows.api_server import serve

    def on_ready() -> None:
        is_ready.set()
        _send(output, StartupMessage.READY)

    serve(socket.socket(fileno=int(sys.argv[1])), on_ready)


if __name__ == "__main__":
    main()
