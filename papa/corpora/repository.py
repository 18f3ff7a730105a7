"""A dataset's repository at one commit: its files, fetched one by one into the cache of
``huggingface_hub``, which keeps all that is needed when the hub is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from papa.errors import DataError, HubUnreachableError
from papa.hub_errors import PATIENCE, download_bar, hub_errors
from papa.spec import HubSource
from papa.storage.artifacts import is_plain

README = "README.md"
_TAIL = 65_536
"""Bytes at a file's end that hold most Parquet footers."""


@dataclass(frozen=True)
class Repository:
    """A dataset's files at one commit."""

    name: str
    commit: str
    files: Mapping[str, int]

    def fetch(self, path: str) -> Path:
        """The file on this machine, downloaded if need be; an interrupted download goes on."""
        from huggingface_hub import hf_hub_download

        with _hub_errors(self.name, self.commit):
            if not self.is_here(path):
                _ask(self.name, self.commit)
            return Path(
                hf_hub_download(
                    self.name,
                    path,
                    repo_type="dataset",
                    revision=self.commit,
                    tqdm_class=download_bar(),
                )
            )

    def is_here(self, path: str) -> bool:
        """Whether the file needs no download."""
        from huggingface_hub import try_to_load_from_cache

        return isinstance(
            try_to_load_from_cache(self.name, path, repo_type="dataset", revision=self.commit), str
        )

    def tail(self, path: str, length: int = _TAIL) -> bytes:
        """The last ``length`` bytes of a file, without fetching the rest."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        start = max(0, self.files[path] - length)
        url = hf_hub_url(self.name, path, repo_type="dataset", revision=self.commit)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-", "Accept-Encoding": "identity"}
        with _hub_errors(self.name, self.commit):
            answer = get_session().get(url, headers=headers, timeout=PATIENCE)
            hf_raise_for_status(answer)
        return answer.content[-length:]


def open_repository(source: HubSource) -> Repository:
    """The repository at the commit that the source's revision stands for now; where the hub does
    not answer, stood for when it was last asked.
    """
    commit = commit_of(source)
    return Repository(source.name, commit, _listed(source.name, commit))


def commit_of(source: HubSource) -> str:
    """The commit that the source's revision stands for, asked once a process."""
    if source.revision is not None and re.fullmatch(r"[0-9a-f]{40}", source.revision):
        return source.revision
    return _asked(source.name, source.revision)


@cache
def _asked(name: str, revision: str | None) -> str:
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        with _hub_errors(name, revision):
            _ask(name, revision)
            return api.resolve_revision(name, repo_type="dataset", revision=revision).resolved
    except HubUnreachableError:
        from huggingface_hub.errors import RevisionResolutionError

        with suppress(RevisionResolutionError):
            return api.resolve_revision(
                name, repo_type="dataset", revision=revision, local_files_only=True
            ).resolved
        raise


@cache
def _listed(name: str, commit: str) -> Mapping[str, int]:
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    def known() -> dict[str, int]:
        files = get_cached_repo_tree(name, repo_type="dataset", revision=commit)
        return {file.path: file.size for file in files if is_plain(file.path)}

    with suppress(CachedRepoTreeNotFoundError):
        return known()
    with _hub_errors(name, commit):
        _ask(name, commit)
        snapshot_download(  # The one call that keeps the list of files.
            name,
            repo_type="dataset",
            revision=commit,
            allow_patterns=[README, ".gitattributes"],
            tqdm_class=download_bar(),
        )
    return known()


def _ask(name: str, revision: str | None) -> None:
    """Ask the hub for something small, trying again for half a minute."""
    from huggingface_hub import HfApi

    HfApi().dataset_info(name, revision=revision, timeout=PATIENCE, expand=["sha"])


def _hub_errors(name: str, revision: str | None) -> AbstractContextManager[None]:
    from huggingface_hub import constants

    return hub_errors(
        f"dataset '{name}'", f"{constants.ENDPOINT}/datasets/{name}", revision, DataError
    )
