"""An encoder's files from the Hugging Face hub: those that are needed, at one commit.

What was fetched once is in the hub's own cache and is found there when the hub is gone. The library sends the user's
token, which it finds by itself, to the hub alone; PAPA never reads it.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from papa.encoders.files import CONFIGURATION, TOKENIZER_FILES, WEIGHT_CHOICES, no_weights
from papa.errors import EncoderError
from papa.hub import PATIENCE, download_bar, refusals_said

_COMMIT = re.compile(r"[0-9a-f]{40}")


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
    with _said(what, name, revision):
        folder = _fetched(name, revision, [CONFIGURATION, *TOKENIZER_FILES])
    return folder, folder.name


def fetch_weights(name: str, commit: str, folder: Path, what: str) -> None:
    """Download an encoder's weights to the folder of its configuration, where they are not here yet.

    Raises:
        EncoderError: it has no weights that PAPA reads, or they may not be read.
        HubUnreachableError: the hub does not answer and not all of them are here.
    """
    patterns = weight_patterns(name, commit, folder, what)
    with _said(what, name, commit):
        _fetched(name, commit, list(patterns))


def weight_patterns(name: str, commit: str, folder: Path, what: str) -> tuple[str, ...]:
    """Patterns of the files that hold an encoder's weights on the hub; none of them is fetched.

    Raises:
        EncoderError: it has no weights that PAPA reads.
    """
    files = _files(name, commit, folder)
    patterns = next((patterns for patterns in WEIGHT_CHOICES if patterns[0] in files), None)
    if patterns is None:
        raise no_weights(what, page_of(name), files)
    return patterns


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
            HfApi().model_info(name, revision=revision, timeout=PATIENCE, expand=["sha"])
        except HfHubHTTPError:
            raise
        except (HTTPError, OfflineModeIsEnabled):
            return Path(snapshot_download(name, **wanted, local_files_only=True))
    return Path(snapshot_download(name, **wanted, tqdm_class=download_bar()))


def _files(name: str, commit: str, folder: Path) -> list[str]:
    """All files of a commit, as the hub listed them when something of it was fetched."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        return [file.path for file in get_cached_repo_tree(name, revision=commit)]
    except CachedRepoTreeNotFoundError:  # Fetched long ago, by a library that kept no list.
        return [path.name for path in folder.iterdir()]


def _said(what: str, name: str, revision: str | None) -> AbstractContextManager[None]:
    return refusals_said(what, page_of(name), revision, EncoderError)
