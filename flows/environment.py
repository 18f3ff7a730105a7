"""The process around Prefect, Ray and MLflow: what they read of it when they are imported."""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from papa.errors import PapaError, joined
from papa.files import cache_folder
from papa.tasks.mlflow_address import tracking_address

_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOOPBACK = "127.0.0.1,localhost,::1"
_PATHS = (
    *("PREFECT_HOME", "PREFECT_PROFILES_PATH", "PREFECT_LOGGING_SETTINGS_PATH"),
    *("PREFECT_LOGGING_CONFIG_PATH", "PAPA_CACHE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"),
    *("RAY_AUTH_TOKEN_PATH", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"),
    *("MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_CLIENT_CERT_PATH"),
    *("PREFECT_API_SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "HF_TOKEN_PATH"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    "TMPDIR",
)
"""Variables that hold a path, which may be relative to the working folder."""


def settle_environment() -> None:
    """Set what engines of this process read: no telemetry, no proxy to this machine, and no warning
    of a flow that it keeps no result.
    """
    logging.getLogger("prefect.flow_runs").addFilter(
        lambda record: not str(record.msg).startswith("Failed to write result")
    )
    os.environ.update(_ENVIRONMENT)
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        if not known.startswith(_LOOPBACK):
            os.environ[name] = f"{_LOOPBACK},{known}".rstrip(",")


def open_standard_streams() -> None:
    """Open standard streams that are closed as ones that read and write nothing: else their numbers
    would go to the next files, which processes started here would take for theirs.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def settle_umask(folder: Path) -> None:
    """Give what is written to its owner alone, or to the group that may write to the folder."""
    shared = folder.is_dir() and folder.stat().st_mode & stat.S_IWGRP
    os.umask(0o007 if shared else 0o077)


def missing_engines(*modules: str) -> str:
    """Return what running a study needs, or ``modules`` besides, and is not installed, in a
    sentence; else "".
    """
    names = ("prefect", "ray", "mlflow", *modules)
    missing = joined(name for name in names if find_spec(name) is None)
    if not missing:
        return ""
    return (
        f"studies run on Prefect, Ray and MLflow, and {missing} cannot be found here: install "
        "PAPA with its extra 'studies', by pip install '.[studies]' in a checkout, or by pip "
        "install 'papa_attention-….whl[studies]' (docs/install.md)"
    )


@contextmanager
def outside_working_folder() -> Iterator[None]:
    """Run the block in an empty folder of the user's own. Engines take settings and modules from
    the folder in which they are started (.env, prefect.toml, gunicorn.conf.py, sqlalchemy.py), and
    somebody else's study may lie there. Relative paths in the environment are made absolute first.
    """
    for name in _PATHS:
        path = os.environ.get(name)
        if path and not path.startswith("~"):
            os.environ[name] = os.path.abspath(path)
    if os.environ.get("MLFLOW_TRACKING_URI"):
        os.environ["MLFLOW_TRACKING_URI"] = tracking_address()
    searched = os.environ.get("PYTHONPATH")
    if searched:
        # An empty entry is the working folder.
        folders = [os.path.abspath(folder) for folder in searched.split(os.pathsep) if folder]
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    with _empty_folder() as descriptor, chdir(descriptor):
        yield


@contextmanager
def _empty_folder() -> Iterator[int]:
    """Yield an open descriptor of an empty folder that only this user may write to."""
    folder = cache_folder() / f"empty-{os.geteuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refusal = PapaError(
        f"{folder} must be empty and writable only by you, because Prefect, Ray and MLflow "
        "are started in it: remove its content, or set PAPA_CACHE to another folder"
    )
    try:
        descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise refusal from None
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid() or state.st_mode & 0o022 or os.listdir(descriptor):
            raise refusal
        yield descriptor
    finally:
        os.close(descriptor)


def prepare_engines(folder: Path, *modules: str, verbose: bool) -> None:
    """Set what Prefect reads when it is imported, which comes after this; with ``verbose`` engines
    show what they log. The group of the store's ``folder`` may read what is written. Raises a
    PapaError if an engine, or one of ``modules``, is not installed.
    """
    missing = missing_engines(*modules)
    if missing:
        raise PapaError(missing)
    settle_umask(folder)
    level = "INFO" if verbose else "CRITICAL"
    os.environ |= {"PREFECT_LOGGING_LEVEL": level, "PREFECT_SERVER_LOGGING_LEVEL": level}
    # What runs log is kept with them, whatever the terminal shows.
    for name, level in (("flow_runs", "INFO"), ("task_runs", "WARNING")):
        os.environ[f"PREFECT_LOGGING_LOGGERS_PREFECT_{name.upper()}_LEVEL"] = level
        logging.getLogger(f"prefect.{name}").propagate = verbose
    logging.raiseExceptions = verbose
    # Threads would complain of every event that a lost server does not take.
    os.environ["PREFECT_INTERNAL_LOGGING_LEVEL"] = "ERROR" if verbose else "CRITICAL"
    logging.getLogger("websockets").setLevel(logging.ERROR if verbose else logging.CRITICAL)
