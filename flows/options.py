"""Options that several commands share, and how a command ends: in one sentence on an error."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from papa.errors import PapaError

if TYPE_CHECKING:
    from flows.interrupt import Interruption
    from papa.spec import StudySpec
    from papa.study.store import Store

DEFAULT_STORE = "papa-store"
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def option(*names: str, **settings: Any) -> Any:
    """An option without a default to show."""
    return typer.Option(*names, show_default=False, **settings)


def argument(**settings: Any) -> Any:
    """An argument without a default to show."""
    return typer.Argument(show_default=False, **settings)


Study = Annotated[Path, argument(metavar="STUDY.yaml", help="The study.")]
Overrides = Annotated[
    list[str] | None,
    option("--set", metavar="a.b=c", help="Override a value of the study; may be repeated."),
]
Code = Annotated[
    list[Path] | None,
    option(
        "--code",
        metavar="FILE.py",
        help="Code of your own that the study names, and that is run; may be repeated.",
    ),
]
StoreAddress = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="DIR|URI",
        envvar="PAPA_STORE",
        help="Where artifacts are kept: a folder, or s3://bucket/prefix.",
    ),
]
Workers = Annotated[
    int | None, option("--workers", min=1, help="Workers; as many as CPU cores or GPUs without it.")
]
RayAddress = Annotated[
    str | None,
    option(
        "--ray-address",
        metavar="ADDRESS",
        help="A Ray cluster: host:port on one of its nodes, or ray://host:10001.",
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show what the engines log, and tracebacks.")
]


def load(study: Path, overrides: list[str] | None) -> StudySpec:
    """The study in a file."""
    from papa.spec.file import load_study

    return load_study(study, overrides or ())


def open_store(address: str) -> Store:
    """The store at an address, which answers."""
    from papa.study.store import Store

    store = Store(address)
    store.check()
    return store


@contextmanager
def one_sentence(verbose: bool = False) -> Iterator[Interruption]:
    """Errors that a user can mend become one sentence and exit code 1; Ctrl-C ends the command."""
    from flows.interrupt import Interruption

    with errors_in_one_sentence(verbose), Interruption() as interruption:
        yield interruption


@contextmanager
def errors_in_one_sentence(verbose: bool) -> Iterator[None]:
    """Errors that a user can mend become one sentence and exit code 1."""
    try:
        yield
    except PapaError as error:
        if verbose:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if verbose or error.errno not in _OF_THE_DISK:
            raise
        what = error.filename or "a file"
        typer.echo(f"error: {what} cannot be written ({error.strerror}): free the disk", err=True)
        sys.exit(1)
