"""The Hugging Face hub: files of encoders and datasets; its errors as messages of PAPA."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from papa.errors import HubUnreachableError, PapaError, in_one_line


@contextmanager
def hub_errors(subject: str, page: str, refusal: type[PapaError]) -> Iterator[None]:
    """Turn errors of the hub inside the block into ``refusal`` or a HubUnreachableError, about a
    ``subject`` such as "dataset 'glue'" and its page on the hub.
    """
    # Studies of local files do without the hub's client.
    from huggingface_hub import constants, errors

    refused = (
        errors.HFValidationError,
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
    )
    no_answer = (
        errors.LocalEntryNotFoundError,
        errors.RevisionResolutionError,
        errors.OfflineModeIsEnabled,
        errors.HTTPError,
    )
    try:
        yield
    except ImportError as error:
        # httpx cannot use a SOCKS proxy without socksio.
        raise HubUnreachableError(subject, in_one_line(error)) from None
    except (*refused, *no_answer, RuntimeError) as error:
        # RuntimeError: the library closes all connections when one fails, also those that other
        # downloads use.
        answer = error if isinstance(error, errors.HfHubHTTPError) else error.__cause__
        status = answer.response.status_code if isinstance(answer, errors.HfHubHTTPError) else None
        if isinstance(error, refused) or status in (401, 403):
            raise refusal(
                f"{subject} cannot be read from {page} ({in_one_line(error)}): correct its name "
                "and revision, give what is on this machine, or log in with 'hf auth login' or "
                "HF_TOKEN as an account that was given access"
            ) from None
        if constants.is_offline_mode():
            raise HubUnreachableError(subject, "HF_HUB_OFFLINE is set") from None
        origin = ", from HF_ENDPOINT" if "HF_ENDPOINT" in os.environ else ""
        problem = f"status {status}" if status else "no answer"
        raise HubUnreachableError(subject, f"{constants.ENDPOINT}{origin}: {problem}") from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise refusal(
                f"{subject} cannot be kept in {constants.HF_HUB_CACHE} ({in_one_line(error)}): "
                "free the disk, or set HF_HOME to another folder"
            ) from None
        problem = f"{constants.ENDPOINT}: the server that answers is no hub"
        raise HubUnreachableError(subject, problem) from None


def fetched(
    name: str,
    revision: str | None,
    subject: str,
    patterns: Sequence[str],
    refusal: type[PapaError],
    kind: str = "model",
) -> Path:
    """Download the files that match ``patterns``; return their folder, named by the commit.

    Args:
        subject: What is downloaded, as messages call it, such as "dataset 'glue'".
        refusal: The class of errors that the user must correct, such as an unknown revision. If the
            hub does not answer, the error is a HubUnreachableError.
    """
    from huggingface_hub import HfApi, constants, errors, get_cached_repo_tree, snapshot_download
    from tqdm.auto import tqdm

    page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
    with hub_errors(subject, page, refusal):
        commit = HfApi().resolve_revision(name, repo_type=kind, revision=revision)
        download = partial(
            snapshot_download,
            name,
            repo_type=kind,
            revision=commit,
            allow_patterns=list(patterns),
            # Bars in terminals only, gone once they are full.
            tqdm_class=partial(tqdm, disable=None, leave=False),
        )
        with suppress(errors.CachedRepoTreeNotFoundError, errors.LocalEntryNotFoundError):
            get_cached_repo_tree(name, repo_type=kind, revision=commit)
            return Path(download(local_files_only=True))
        answers = True
        try:
            # One request: a download would try for half a minute before it fails.
            HfApi().repo_info(name, repo_type=kind, revision=commit, timeout=10)
        except errors.HfHubHTTPError:
            raise
        except (errors.HTTPError, errors.OfflineModeIsEnabled):
            answers = False
        return Path(download(local_files_only=not answers))
