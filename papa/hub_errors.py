"""The Hugging Face hub: its refusals and its silence as sentences, for encoders and datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from papa.errors import HubUnreachableError, PapaError

_LOGIN = "log in with 'hf auth login' or set HF_TOKEN"


@contextmanager
def hub_errors(
    what: str, page: str, revision: str | None, refusal: type[PapaError]
) -> Iterator[None]:
    """Turn what the hub answers inside the block into one sentence."""
    from huggingface_hub import constants, errors

    silence = (
        *(errors.LocalEntryNotFoundError, errors.RevisionResolutionError),
        *(errors.OfflineModeIsEnabled, errors.HTTPError),
    )
    refused: dict[type[Exception], str] = {
        errors.HFValidationError: "is no name on the hub: give one such as owner/name, or what is "
        "on this machine: an encoder's folder, a dataset's files",
        errors.GatedRepoError: f"is gated: accept its licence at {page}, then {_LOGIN} as the "
        "account that was given access",
        errors.RevisionNotFoundError: f"has no revision '{revision}' on the hub: give a branch, "
        f"tag or commit of {page}",
        errors.RepositoryNotFoundError: "is not on the hub, or it is private: correct the name, "
        f"give what is on this machine, or {_LOGIN} as an account that may read {page}",
    }
    try:
        yield
    except tuple(refused) as error:
        said = next(said for kind, said in refused.items() if isinstance(error, kind))
        raise refusal(f"{what} {said}") from None
    except (*silence, RuntimeError) as error:
        # RuntimeError: the library closes its connections when one fails; other downloads meet the
        # closed ones.
        answer = error if isinstance(error, errors.HfHubHTTPError) else error.__cause__
        status = answer.response.status_code if isinstance(answer, errors.HfHubHTTPError) else None
        if status in (401, 403):
            raise refusal(
                f"{what}: the hub does not accept the token for {page} (status {status}): {_LOGIN} "
                "again"
            ) from None
        place = constants.ENDPOINT + (", from HF_ENDPOINT" if "HF_ENDPOINT" in os.environ else "")
        why = f"{place}: {f'status {status}' if status else 'no answer'}"
        why = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else why
        raise HubUnreachableError(what, why) from None
    except (OSError, ValueError) as error:
        if (number := getattr(error, "errno", None)) is None:
            why = f"{constants.ENDPOINT}: what answers is no hub"
            raise HubUnreachableError(what, why) from None
        raise refusal(
            f"{what} cannot be kept in {constants.HF_HUB_CACHE} ({os.strerror(number)}): free the "
            "disk, or set HF_HOME to another folder"
        ) from None


def download_bar() -> Any:
    """A progress bar for people alone, and only while it moves."""
    from tqdm.auto import tqdm

    return partial(tqdm, disable=None, leave=False)
