"""The filesystem behind a URI, by fsspec, with every failure in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from papa.errors import ArtifactError, PapaError, TransientError
from papa.storage.cache import endpoint

Found = TypeVar("Found")

_S3 = {
    "config_kwargs": {
        "connect_timeout": 5,
        "retries": {"mode": "standard", "total_max_attempts": 5},
    }
}
_TAKEN = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}
_PASSING = {"InternalError", "ServiceUnavailable", "SlowDown", "500", "503"}
_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
}


def filesystem(uri: str) -> tuple[AbstractFileSystem, str]:
    """The filesystem of a URI and the path in it."""
    protocol = uri.partition("://")[0]
    try:
        return url_to_fs(
            uri, use_listings_cache=False, **(_S3 if protocol in ("s3", "s3a") else {})
        )
    except ImportError as error:
        raise ArtifactError(
            f"{uri}: a package for '{protocol}://' is not installed ({error})"
        ) from None
    except ValueError as error:
        raise ArtifactError(
            f"{uri} is no address of a store ({error}): give a folder, or a URI such as "
            "s3://bucket/prefix"
        ) from None


def read(files: AbstractFileSystem, path: str) -> bytes | None:
    """The bytes of a small object; None where there is none."""
    try:
        # A range spares s3fs its question for the size, and tells more when it is refused.
        return files.cat_file(path, start=0)
    except FileNotFoundError as error:
        if without_bucket(error):
            raise
        return None
    except OSError as error:
        # An empty object has no first byte.
        if _code(error) == "InvalidRange":
            return b""
        raise


def put_new(files: AbstractFileSystem, path: str, data: bytes) -> bool:
    """Put an object where there is none; False where there is one.

    On S3 the server decides, by ``If-None-Match: *``: of two writers one wins.
    """
    try:
        files.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if _code(error) in _TAKEN:
            return False
        raise
    return True


def without_bucket(error: FileNotFoundError) -> bool:
    """Whether not the object but all around it is missing."""
    return _code(error) == "NoSuchBucket"


@contextmanager
def storage_errors(uri: str) -> Iterator[None]:
    """Whatever a filesystem raises inside becomes one sentence."""
    try:
        yield
    except PapaError:
        raise
    except Exception as error:
        raise _as_papa_error(uri, error) from None


def _as_papa_error(uri: str, error: Exception) -> PapaError:
    code, kind = _code(error), type(error).__name__
    reason = " ".join(str(error).split()).rstrip(".") or kind
    keys = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if kind == "NoCredentialsError":
        return ArtifactError(f"there are no credentials for {uri}: set {keys}, or AWS_PROFILE")
    if code in _CREDENTIALS:
        return ArtifactError(f"{uri} refuses the credentials ({code}): check {keys}")
    if isinstance(error, PermissionError):
        return ArtifactError(
            f"{uri} refuses what these credentials ask ({reason}): it takes the right to list, "
            "read, write and delete"
        )
    if isinstance(error, FileNotFoundError):
        return ArtifactError(
            f"{uri} is not there ({reason}): create its bucket, or give another store"
        )
    if "Connect" in kind or "Timeout" in kind or code in _PASSING:
        where = f" at {endpoint()}" if endpoint() else ""
        return TransientError(
            f"{uri}{where} cannot be reached ({reason}): check AWS_ENDPOINT_URL and the network"
        )
    return ArtifactError(
        f"{uri} cannot be used ({kind}: {reason}): check the address and the service behind it"
    )


def _code(error: BaseException) -> str:
    """The code of an S3 error; empty for others."""
    return getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")


def in_time(seconds: float, action: Callable[[], Found]) -> Found:
    """Run an action in a thread: not every wait of every filesystem has an end of its own.

    Raises:
        TimeoutError: it took longer; its thread is left behind.
    """
    done: Future[Found] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
