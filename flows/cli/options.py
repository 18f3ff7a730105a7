"""What commands share: options, how they print, and how they end, in a sentence on an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from papa.errors import ArtifactError, CheckError, PapaError, joined, printable
from papa.flows.interrupt import Interruption
from papa.spec import StudySpec
from papa.spec.faults import StudyFileError
from papa.spec.file import load_study
from papa.storage.locks import active_processes
from papa.storage.store import Store
from papa.tasks.manifest import FinishedStudy, open_study
from papa.tasks.stored import check_stored, load_to_run
from papa.tasks.study_changes import differing_keys
from papa.tasks.study_files import fetch_studies

if TYPE_CHECKING:
    from pandas import DataFrame

DEFAULT_STORE = "papa-store"

option: Any = partial(typer.Option, show_default=False)
argument: Any = partial(typer.Argument, show_default=False)
Study = Annotated[Path, argument(metavar="STUDY.yaml", help="Study file.")]
Finished = Annotated[
    str,
    argument(
        metavar="STUDY",
        help="Finished study: its name in the store, its file, or its results' folder.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    option("--set", metavar="a.b=c", help="Override a value of the study; may be repeated."),
]
_CODE = "Python file with custom code that the study names; it is executed. May be repeated."
Code = Annotated[
    list[Path] | None, option("--code", metavar="FILE.py", help=_CODE, exists=True, dir_okay=False)
]
AllowSource = Annotated[
    list[Path] | None,
    option(
        "--allow-source",
        metavar="PATH",
        help="File or folder that a study file in a store may read; may be repeated.",
    ),
]
StoreAddress = Annotated[
    str,
    typer.Option(
        metavar="DIR|URI",
        envvar="PAPA_STORE",
        help="Artifact store: a folder, or s3://bucket/prefix.",
    ),
]
Workers = Annotated[
    int | None,
    option(
        min=1, help="Workers (default: the study's, else one per CPU core or GPU); 1 needs no Ray."
    ),
]
RayAddress = Annotated[
    str | None,
    option(metavar="ADDRESS", help="Ray cluster: host:port of a node, or ray://host:10001."),
]
AsJson = Annotated[bool, option("--json", help="Print JSON.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show logs of Prefect, Ray and MLflow, and tracebacks.")
]


def load_or_list_problems(
    path: Path,
    overrides: Sequence[str] | None,
    allowed: Sequence[Path] | None,
    code: Sequence[Path] | None,
) -> StudySpec:
    """Load a study to run it, as ``load_to_run`` does. If its file has faults, raise a CheckError
    that lists them and all problems of what can be checked in spite of them.
    """
    try:
        return load_to_run(path, overrides or (), allowed or ())
    except StudyFileError as error:
        if error.checkable is None:
            raise
        # Its imports take long, and another study does without them here.
        from papa.flows.check import problems_of_part

        check_stored(path, error.checkable.study, allowed or ())
        others = map(error.checkable.in_file, problems_of_part(error.checkable.study, code or ()))
        raise CheckError([*error.problems, *others]) from None


def open_store(address: str) -> Store:
    """Return the store at an address, which answers."""
    store = Store(address)
    store.check()
    return store


def marked_store(address: str) -> Store:
    """Return the store at an address, which is one."""
    if not (store := open_store(address)).is_marked():
        raise ArtifactError(
            f"{store.address} is not a store of PAPA (papa-store.json is missing): give the "
            "--store that 'papa run' used, or run a study first"
        )
    return store


def refuse_deletion_in_use(store: Store) -> None:
    """Raise an ArtifactError while runs use a store."""
    busy = active_processes(store)
    if busy:
        raise ArtifactError(
            f"a study uses {store.address} ({busy}): nothing was deleted; run again when it has "
            "ended"
        )


def open_finished(address: str, study: str) -> FinishedStudy:
    """Open a finished study by its name, file or folder of results; say on stderr where the file
    describes another version of it.
    """
    store = open_store(address)
    fetch_studies(store)
    finished = open_study(store, study)
    if Path(study).is_file():
        keys = differing_keys(load_study(Path(study)), finished.study)
        if keys:
            warning = (
                f"warning: the results are of another version of {study}, which differs in "
                f"{joined(keys)}: 'papa run {study}' computes those of this file"
            )
            typer.echo(printable(warning), err=True)
    return finished


@contextmanager
def one_sentence(verbose: bool = False) -> Iterator[Interruption]:
    """Turn errors that a user can fix, and those of the system, into one sentence and exit code 1;
    Ctrl-C ends the command.
    """
    try:
        with Interruption() as interruption:
            yield interruption
    except (PapaError, OSError) as error:
        if verbose:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


def print_json(document: object) -> None:
    """Print a JSON document, in ASCII: names in a store may hold what a terminal obeys."""
    typer.echo(json.dumps(document, indent=2))


def printable_names(table: DataFrame) -> DataFrame:
    """Return a table whose texts hold no character that a terminal would obey."""
    return table.map(lambda value: printable(value) if isinstance(value, str) else value)


def print_table(headings: Sequence[str], rows: Iterable[Iterable[str]], **settings: Any) -> None:
    """Print a table; into a file or pipe, which has no width, a line for each row with tabs. Cells
    hold no markup, and what is not printable in them is escaped. For ``settings`` see rich's
    ``Table``.
    """
    printed = [[printable(cell) for cell in row] for row in rows]
    console = Console()
    if not console.is_terminal:
        for row in (headings, *printed):
            typer.echo("\t".join(row))
        return
    table = Table(*(Column(name, overflow="fold") for name in headings), **settings)
    for row in printed:
        table.add_row(*map(Text, row))
    console.print(table)
