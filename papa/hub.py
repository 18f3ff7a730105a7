"""The Hugging Face hub: files of encoders and datasets; refusals and silence as sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from papa.errors import HubUnreachableError, PapaError, in_one_line

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
    except ImportError as error:
        # httpx cannot use a SOCKS proxy without socksio.
        raise HubUnreachableError(what, in_one_line(error)) from None
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


def fetched(
    name: str,
    revision: str | None,
    what: str,
    patterns: Sequence[str],
    refusal: type[PapaError],
    kind: str = "model",
) -> Path:
    """The folder, named by the commit, where the files of these names now are."""
    from huggingface_hub import HfApi, constants, errors, get_cached_repo_tree, snapshot_download
    from tqdm.auto import tqdm

    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
    with hub_errors(what, page, revision, refusal):
        commit = HfApi().resolve_revision(name, repo_type=kind, revision=revision)
        # A bar for people alone, and only while it moves.
        wanted: Any = {"repo_type": kind, "revision": commit, "allow_patterns": list(patterns)}
        wanted["tqdm_class"] = partial(tqdm, disable=None, leave=False)
        with suppress(errors.CachedRepoTreeNotFoundError, errors.LocalEntryNotFoundError):
            get_cached_repo_tree(name, repo_type=kind, revision=commit)
            return Path(snapshot_download(name, **wanted, local_files_only=True))
        try:
            # Asked once: a download would ask for half a minute before it says that nobody answers.
            HfApi().repo_info(name, repo_type=kind, revision=commit, timeout=10)
        except errors.HfHubHTTPError:
            raise
        except (errors.HTTPError, errors.OfflineModeIsEnabled):
            wanted["local_files_only"] = True
        return Path(snapshot_download(name, **wanted))
