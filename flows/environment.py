"""Settings that engines read at import: their folders in the store, telemetry off, loopback only."""

from __future__ import annotations

import os
import sys

from flows.processes import Process
from papa.errors import SpecError
from tasks.store import Store

DRIVER = "PAPA_DRIVER"
"""Names the process that runs a study; its Prefect server inherits it, which tells whose server that is."""

_QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_UNUSED_SERVICES = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
    "TRIGGERS",
)


def prepare_environment(store: Store, *, verbose: bool = False) -> None:
    """Point Prefect at the store; to be called before Prefect is imported.

    Without ``PREFECT_API_URL`` a server of the study's own is started on the loopback interface, with its
    database under the store, and ends with the study. With it that server is used.

    Args:
        store: where Prefect keeps its database and results.
        verbose: show what engines log.

    Raises:
        SpecError: Prefect was imported before, for another store.
    """
    home = str(store.prefect)
    if "prefect" in sys.modules and os.environ.get("PREFECT_HOME") != home:
        raise SpecError(
            f"Prefect runs in {os.environ.get('PREFECT_HOME')} in this process: use a new process for {store.root}"
        )
    os.environ.update(_QUIET)
    os.environ["PREFECT_HOME"] = home
    os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] = str(store.prefect / "results")
    os.environ["PREFECT_LOGGING_LEVEL"] = "INFO" if verbose else "CRITICAL"
    os.environ[DRIVER] = str(Process.this())
    if "PREFECT_API_URL" not in os.environ:
        os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "true"
        os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "90")
        os.environ["PREFECT_API_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{store.prefect / 'prefect.db'}"
        for service in _UNUSED_SERVICES:
            os.environ[f"PREFECT_SERVER_SERVICES_{service}_ENABLED"] = "false"


def own_server() -> bool:
    """Whether studies start a Prefect server of their own."""
    return "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE" in os.environ
