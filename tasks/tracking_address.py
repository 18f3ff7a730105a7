"""Where MLflow keeps a study's runs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tasks.store import Store

SQLITE = "sqlite:///"


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI`` where it is set, else sqlite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.mlflow_database}"


def database_of(address: str) -> Path | None:
    """The file of a SQLite address; None for a server's."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def without_password(address: str) -> str:
    """An address fit to be shown and stored."""
    parts = urlsplit(address)
    if parts.password is None:
        return address
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))
