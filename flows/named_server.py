"""The Prefect server that settings name, which may stop answering while a study runs.

Prefect reads its settings when it is imported: ``prepare_engines`` comes before this module.
"""

import threading
import time
from collections.abc import Callable

from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, get_current_settings, temporary_settings

from papa.credentials import without_credentials

_LOOK_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""How often the server is looked after; how long a study waits for its answers."""


def watch_named_server(tell: Callable[[str], object]) -> threading.Event:
    """Watch the server that settings name, in a thread: ``tell`` that it does not answer, and after
    a minute let requests fail at once, each of which would be repeated for another minute. The
    event is set while it does not answer.
    """
    client_settings = get_current_settings().client
    retries = client_settings.max_retries
    silent = threading.Event()

    def watch() -> None:
        answered = time.monotonic()
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client({"timeout": _LOOK_SECONDS}, sync_client=True) as client,
        ):
            while True:
                time.sleep(_LOOK_SECONDS)
                if client.api_healthcheck() is None:
                    answered = time.monotonic()
                    silent.clear()
                elif not silent.is_set():
                    silent.set()
                    address = without_credentials(str(client.api_url))
                    tell(f"Prefect's server at {address} does not answer: the study goes on")
                is_patient = time.monotonic() - answered < _PATIENCE_SECONDS
                client_settings.max_retries = retries if is_patient else 0

    threading.Thread(target=watch, name="server", daemon=True).start()
    return silent
