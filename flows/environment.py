"""Settings that engines read at import: folders in the store, telemetry off, loopback only."""

from __future__ import annotations

import logging
import os
import resource
import stat
from importlib.util import find_spec
from pathlib import Path

from papa.errors import PapaError, SpecError, joined
from papa.study.store import Store

_QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_FILE_BYTES = 10**9


def missing_engines() -> list[str]:
    """What running a study needs and the library alone does not, where it is not installed."""
    return [name for name in ("prefect", "ray", "mlflow") if find_spec(name) is None]


def prepare_environment(store: Store, *, verbose: bool = False) -> None:
    """Point Prefect at the store; to be called before Prefect is imported.

    With ``verbose`` engines show what they log.
    """
    if missing := missing_engines():
        raise PapaError(
            f"studies run on Prefect, Ray and MLflow, and {joined(missing)} cannot be found here: "
            "pip install 'papa-attention[studies]'"
        )
    check_file_size()
    quiet_engines()
    _keep_private(store.root)
    os.environ["PREFECT_HOME"] = str(store.prefect)
    # Else they would come from the store: a logging configuration calls whatever it names.
    os.environ["PREFECT_PROFILES_PATH"] = os.devnull
    os.environ.setdefault("PREFECT_LOGGING_CONFIG_PATH", f"{os.devnull}/none")
    os.environ["PREFECT_LOGGING_LEVEL"] = "INFO" if verbose else "CRITICAL"
    # What runs tell is kept with them, whatever the terminal shows. A line that their server does
    # not take is lost.
    for name, level in (("flow_runs", "INFO"), ("task_runs", "WARNING")):
        os.environ[f"PREFECT_LOGGING_LOGGERS_PREFECT_{name.upper()}_LEVEL"] = level
        logging.getLogger(f"prefect.{name}").propagate = verbose
    logging.raiseExceptions = verbose
    # Of a server that is lost its threads would tell with every event that they cannot send.
    os.environ["PREFECT_INTERNAL_LOGGING_LEVEL"] = "ERROR" if verbose else "CRITICAL"
    # It prints a traceback where its line to the server is cut.
    logging.getLogger("websockets").setLevel(logging.ERROR if verbose else logging.CRITICAL)


def check_file_size() -> None:
    """Refuse a limit of the shell's that databases, weights or features would reach in the middle
    of a study.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit < _FILE_BYTES:
        raise SpecError(
            f"a file may have {limit:,} bytes at most here (ulimit -f), and a study writes files "
            f"of {_FILE_BYTES:,} and more: raise it, as with ulimit -f unlimited"
        )


def _keep_private(root: Path) -> None:
    """What this process and its children write is their owner's alone; the group's too, where it
    may write to the store's folder.
    """
    shared = root.is_dir() and root.stat().st_mode & stat.S_IWGRP
    os.umask(0o007 if shared else 0o077)


def quiet_engines() -> None:
    """No engine that this process starts sends telemetry."""
    os.environ.update(_QUIET)
