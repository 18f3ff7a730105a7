"""Serve Prefect's API and pages on a socket that listens already, until standard input ends.

``papa.flows.server`` starts this module, and keeps the socket too: no other account can take its
port. A line on standard output says that the server answers.
"""

import os
import signal
import socket
import sys
import threading

from papa.garbage import uncollected


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # First, as the imports take seconds, in which the study may end.
    threading.Thread(target=_end_with_input, daemon=True).start()
    # What else is printed goes to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    with uncollected():
        from papa.flows.api_server import serve
    serve(socket.socket(fileno=int(sys.argv[1])), output)
