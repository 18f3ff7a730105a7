"""The Prefect server of one's own that ``PREFECT_API_URL`` names, checked before a study needs it."""

from __future__ import annotations

from papa.errors import PapaError, TransientError
from tasks.tracking_address import without_password

_SECONDS = 15.0


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
            temporary_settings({PREFECT_API_REQUEST_TIMEOUT: _SECONDS, PREFECT_CLIENT_MAX_RETRIES: 0}),
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
