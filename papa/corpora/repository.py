"""A dataset's repository at one commit: its files, listed and fetched one by one into the hub's own cache.

The cache of ``huggingface_hub`` keeps which commit a branch stood for, what lies in it and what was fetched, so that
all of it is there again when the hub is gone. A local folder laid out like a repository takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from papa.artifacts import sha256_of_file, sha256_of_json
from papa.errors import DataError, HubUnreachableError
from papa.spec import HubSource

README = "README.md"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE = 10.0
"""Seconds to wait for the hub's answer."""
_TAIL = 65_536
"""Bytes at a file's end that hold most Parquet footers."""


@dataclass(frozen=True)
class Repository:
    """A dataset's files at one commit.

    Attributes:
        name: of the dataset, or the folder.
        commit: on the hub; for a folder, a digest of its content.
        files: bytes of each file, by its path in the repository.
        local: whether it is a folder.
    """

    name: str
    commit: str
    files: Mapping[str, int]
    local: bool

    def fetch(self, path: str) -> Path:
        """The file on this machine, downloaded if it is not there; an interrupted download goes on.

        Raises:
            DataError: it may not be read.
            HubUnreachableError: it is not on this machine and the hub does not answer.
        """
        if self.local:
            return Path(self.name) / path
        from huggingface_hub import hf_hub_download

        with _said(self.name, self.commit):
            return Path(
                hf_hub_download(self.name, path, repo_type="dataset", revision=self.commit, tqdm_class=_silent())
            )

    def is_here(self, path: str) -> bool:
        """Whether the file needs no download."""
        if self.local:
            return True
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.name, path, repo_type="dataset", revision=self.commit), str)

    def tail(self, path: str, length: int = _TAIL) -> bytes:
        """The last ``length`` bytes of a file, without fetching the rest.

        Raises:
            DataError: it may not be read.
            HubUnreachableError: the hub does not answer.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        start = max(0, self.files[path] - length)
        url = hf_hub_url(self.name, path, repo_type="dataset", revision=self.commit)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-", "Accept-Encoding": "identity"}
        with _said(self.name, self.commit):
            answer = get_session().get(url, headers=headers, timeout=_PATIENCE)
            hf_raise_for_status(answer)
        return answer.content[-length:]


def open_repository(source: HubSource) -> Repository:
    """The repository at the commit that the source's revision stands for now.

    Where the hub does not answer, at the commit that it stood for when it was last asked.

    Raises:
        DataError: there is no such dataset or revision, or it may not be read.
        HubUnreachableError: the hub does not answer, and this machine never asked before.
    """
    folder = Path(source.name)
    commit = commit_of(source)
    if folder.is_dir():
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}
        return Repository(source.name, commit, sizes, local=True)
    return Repository(source.name, commit, _listed(source.name, commit), local=False)


@cache
def commit_of(source: HubSource) -> str:
    """The commit that the source's revision stands for, asked once a process; for a folder, a digest of its content.

    Raises:
        DataError: there is no such dataset or revision, or it may not be read.
        HubUnreachableError: the hub does not answer, and this machine never asked before.
    """
    folder = Path(source.name)
    if folder.is_dir():
        return sha256_of_json({str(path.relative_to(folder)): sha256_of_file(path) for path in _files(folder)})
    return source.revision if _is_commit(source.revision) else _asked(source.name, source.revision)


@cache
def _asked(name: str, revision: str | None) -> str:
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        with _said(name, revision):
            # Asked with patience first: what follows would wait for an answer for ever.
            api.dataset_info(name, revision=revision, timeout=_PATIENCE, expand=["sha"])
            return api.resolve_revision(name, repo_type="dataset", revision=revision).resolved
    except HubUnreachableError:
        from huggingface_hub.errors import RevisionResolutionError

        with suppress(RevisionResolutionError):
            return api.resolve_revision(name, repo_type="dataset", revision=revision, local_files_only=True).resolved
        raise


@cache
def _listed(name: str, commit: str) -> Mapping[str, int]:
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    def known() -> dict[str, int]:
        return {file.path: file.size for file in get_cached_repo_tree(name, repo_type="dataset", revision=commit)}

    with suppress(CachedRepoTreeNotFoundError):
        return known()
    with _said(name, commit):
        # The one call that keeps the list of files.
        small = [README, ".gitattributes"]
        snapshot_download(name, repo_type="dataset", revision=commit, allow_patterns=small, tqdm_class=_silent())
    return known()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _silent() -> type[Any]:
    """Progress bars that are not shown: files are fetched side by side, whose bars would overwrite one another."""
    from huggingface_hub.utils import tqdm

    class Silent(tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})

    return Silent


@contextmanager
def _said(name: str, revision: str | None) -> Iterator[None]:
    """What the hub refuses, or that it does not answer, as one sentence without the token."""
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

    try:
        yield
    except GatedRepoError:
        raise DataError(
            f"dataset '{name}' is gated: accept its terms at {constants.ENDPOINT}/datasets/{name}, then log in with "
            "'hf auth login'"
        ) from None
    except RevisionNotFoundError:
        raise DataError(
            f"dataset '{name}' has no revision '{revision}' on the hub: set source.revision to one of its branches, "
            f"tags or commits ({constants.ENDPOINT}/datasets/{name}/tree/main lists them)"
        ) from None
    except RepositoryNotFoundError:
        raise DataError(
            f"dataset '{name}' is not on the hub, or it is private: correct source.name, or log in with "
            "'hf auth login' to an account that may read it"
        ) from None
    except HFValidationError:
        raise DataError(
            f"dataset '{name}' is no folder and no name of the hub: give a name such as nyu-mll/glue, or a folder"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status >= 500 or status == 429:
            raise _unreachable(name, f"it answers {status}") from None
        advice = "log in again with 'hf auth login'" if status in (401, 403) else "correct source.name and revision"
        raise DataError(f"dataset '{name}': the hub refuses it with status {status}: {advice}") from None
    except OfflineModeIsEnabled:
        raise _unreachable(name, "HF_HUB_OFFLINE is set") from None
    except (HTTPError, LocalEntryNotFoundError, ConnectionError, TimeoutError) as error:
        reason = next((f"{type(cause).__name__}" for cause in (error.__cause__, error) if cause), "")
        raise _unreachable(name, reason) from None


def _unreachable(name: str, reason: str) -> HubUnreachableError:
    return HubUnreachableError(f"dataset '{name}'", reason)


def _is_commit(revision: str | None) -> TypeGuard[str]:
    return revision is not None and _COMMIT.fullmatch(revision) is not None
