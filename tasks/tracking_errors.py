"""What MLflow says when it fails, as one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from papa.errors import PapaError, TransientError
from tasks.tracking_address import without_password


class TrackingError(PapaError):
    """MLflow's address is wrong, or MLflow refuses."""


@contextmanager
def explained(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence.

    Args:
        address: MLflow's tracking URI.

    Raises:
        TransientError: the server cannot be reached.
        TrackingError: anything else that MLflow says.
    """
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    shown = without_password(address)
    try:
        yield
    except (MlflowException, RequestException) as error:
        status = _status(error)
        if status in (401, 403):
            raise TrackingError(
                f"MLflow at {shown} refused the user or its password (HTTP {status}): set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or ask its administrator for the right to edit the experiment"
            ) from error
        if isinstance(error, RequestException) or isinstance(error.__context__, RequestException):
            raise TransientError(
                f"MLflow at {shown} cannot be reached: start it, or set MLFLOW_TRACKING_URI to where it is"
            ) from error
        raise TrackingError(f"MLflow at {shown} cannot be used: {_said(error, address)}") from error
    except (SQLAlchemyError, CommandError, sqlite3.Error) as error:
        raise TrackingError(
            f"MLflow's database {shown} cannot be used ({_said(error, address)}): move it away, or set "
            "MLFLOW_TRACKING_URI to another"
        ) from error


def _status(error: Exception) -> int | None:
    """The HTTP status of an answer that was an error."""
    response = getattr(error, "response", None)
    if response is not None:
        return int(response.status_code)
    told = getattr(error, "get_http_status_code", None)
    return told() if told else None


def _said(error: Exception, address: str) -> str:
    """The first sentence of what MLflow says."""
    words = str(error).replace(address.rstrip("/"), without_password(address)).strip()
    return words.splitlines()[0].split(". ")[0].rstrip(".") if words else type(error).__name__
