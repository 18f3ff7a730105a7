"""An encoder's files from the Hugging Face hub: those that are needed, at one commit.

What was fetched once is in the hub's own cache and is found there when the hub is gone. The library sends the user's
token, which it finds by itself, to the hub alone; PAPA never reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from papa.encoders.files import CONFIGURATION, TOKENIZER_FILES, WEIGHT_CHOICES, no_weights
from papa.errors import EncoderError, HubUnreachableError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE = 10.0
"""Seconds to wait for the hub's answer."""
_LOGIN = "log in with 'hf auth login' or set HF_TOKEN"


def fetch_configuration(name: str, revision: str | None, what: str) -> tuple[Path, str]:
    """Download an encoder's configuration and tokenizer, where they are not here yet.

    Args:
        name: on the hub.
        revision: a branch, tag or commit; None is the default branch.
        what: the encoder, for messages.

    Returns:
        The folder with its files, and the commit.

    Raises:
        EncoderError: there is no such encoder or revision, or it may not be read.
        HubUnreachableError: the hub does not answer and not all of it is here.
    """
    with _refusals_said(what, name, revision):
        folder = _fetched(name, revision, [CONFIGURATION, *TOKENIZER_FILES])
    return folder, folder.name


def fetch_weights(name: str, commit: str, folder: Path, what: str) -> None:
    """Download an encoder's weights to the folder of its configuration, where they are not here yet.

    Raises:
        EncoderError: it has no weights that PAPA reads, or they may not be read.
        HubUnreachableError: the hub does not answer and not all of them are here.
    """
    files = _files(name, commit, folder)
    patterns = next((patterns for patterns in WEIGHT_CHOICES if patterns[0] in files), None)
    if patterns is None:
        raise no_weights(what, page_of(name), files)
    with _refusals_said(what, name, commit):
        _fetched(name, commit, list(patterns))


def page_of(name: str) -> str:
    """Where a person finds an encoder's page: its licence, its files."""
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{name}"


def _fetched(name: str, revision: str | None, patterns: list[str]) -> Path:
    """The folder of a commit; the files of these names in it are on this machine."""
    from huggingface_hub import HfApi, get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import (
        CachedRepoTreeNotFoundError,
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    wanted: dict[str, Any] = {"revision": revision, "allow_patterns": patterns}
    if revision and _COMMIT.fullmatch(revision):
        with suppress(CachedRepoTreeNotFoundError, LocalEntryNotFoundError):
            get_cached_repo_tree(name, revision=revision)
            return Path(snapshot_download(name, **wanted, local_files_only=True))
        try:
            # Asked once: downloads would try again for half a minute before they say that the hub is gone.
            HfApi().model_info(name, revision=revision, timeout=_PATIENCE, expand=["sha"])
        except HfHubHTTPError:
            raise
        except (HTTPError, OfflineModeIsEnabled):
            return Path(snapshot_download(name, **wanted, local_files_only=True))
    return Path(snapshot_download(name, **wanted, tqdm_class=_bar()))


def _files(name: str, commit: str, folder: Path) -> list[str]:
    """All files of a commit, as the hub listed them when something of it was fetched."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        return [file.path for file in get_cached_repo_tree(name, revision=commit)]
    except CachedRepoTreeNotFoundError:  # Fetched long ago, by a library that kept no list.
        return [path.name for path in folder.iterdir()]


@contextmanager
def _refusals_said(what: str, name: str, revision: str | None) -> Iterator[None]:
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    page = page_of(name)
    try:
        yield
    except HFValidationError:
        raise EncoderError(
            f"{what} is no folder and no name on the hub: give one such as google-bert/bert-base-uncased"
        ) from None
    except GatedRepoError:
        raise EncoderError(
            f"{what} is gated: accept its licence at {page}, then {_LOGIN} as the account that was given access"
        ) from None
    except RevisionNotFoundError:
        raise EncoderError(
            f"{what} has no revision '{revision}' on the hub: give a branch, tag or commit of {page}"
        ) from None
    except RepositoryNotFoundError:
        raise EncoderError(
            f"{what} is not on the hub, or it is private: correct the name, give a folder, or {_LOGIN} as an account "
            f"that may read {page}"
        ) from None
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError) as error:
        answer = error if isinstance(error, HfHubHTTPError) else error.__cause__
        status = answer.response.status_code if isinstance(answer, HfHubHTTPError) else None
        if status in (401, 403):
            raise EncoderError(
                f"{what}: the hub does not accept the token for {page} (status {status}): {_LOGIN} again"
            ) from None
        raise HubUnreachableError(what, _why_unreachable(status)) from None
    except (HTTPError, RuntimeError):
        # The library closes its connections when one fails; other downloads meet the closed ones.
        raise HubUnreachableError(what, _why_unreachable(None)) from None
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number is None:
            raise HubUnreachableError(what, f"{constants.ENDPOINT}: what answers is no hub") from None
        raise EncoderError(
            f"{what} cannot be kept in {constants.HF_HUB_CACHE} ({os.strerror(number)}): free the disk, or set "
            "HF_HOME to another folder"
        ) from None


def _why_unreachable(status: int | None) -> str:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    place = constants.ENDPOINT + (", from HF_ENDPOINT" if "HF_ENDPOINT" in os.environ else "")
    return f"{place}: {f'status {status}' if status else 'no answer'}"


def _bar() -> type[Any]:
    """A progress bar for people alone, and only while it moves."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": None, "leave": False})

    return Bar
