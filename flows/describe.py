"""``papa describe``: what heads do, an encoder's on a file of texts or a study's on its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flows.options import (
    DEFAULT_STORE,
    Overrides,
    StoreAddress,
    Verbose,
    argument,
    load_stored,
    one_sentence,
    open_store,
    option,
)
from flows.terminal import print_table, say
from papa.errors import SpecError
from papa.storage.atomic import write_atomically

if TYPE_CHECKING:
    import pandas as pd

    from papa.spec import StudySpec
    from papa.study.store import Store

_TEXTS = "With --encoder: a text a line, or a table with a column 'text'."
_TREES = "Sentences with gold trees: CoNLL-U, or a table with tokens, head and deprel."
_ONLY = "A description, such as norms; may be repeated. All without it."
_FRACTION = (
    "With STUDY: heads that stay input-dependent in the replaced model, the last of its first "
    "order; without it none."
)


def describe(
    study: Annotated[
        str | None,
        argument(metavar="[STUDY]", help="A finished study's YAML file, or its name in the store."),
    ] = None,
    encoder: Annotated[
        str | None, option("--encoder", metavar="NAME", help="A name or a folder; no study.")
    ] = None,
    text: Annotated[Path | None, option("--text", metavar="FILE", help=_TEXTS)] = None,
    trees: Annotated[Path | None, option("--trees", metavar="FILE", help=_TREES)] = None,
    only: Annotated[list[str] | None, option("--only", metavar="NAME", help=_ONLY)] = None,
    fraction: Annotated[float | None, option("--fraction", metavar="SHARE", help=_FRACTION)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The first texts alone.")] = 200,
    out: Annotated[
        Path | None, option("--out", metavar="FOLDER", help="Write a Parquet file for each.")
    ] = None,
    overrides: Overrides = None,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Tell what heads do on some texts, and what of it is constant."""
    with one_sentence(verbose):
        if out is not None and out.exists() and not out.is_dir():
            raise SpecError(f"--out {out} is a file, expected a folder: give another name")
        console = Console()
        if study is not None and encoder is None and text is None:
            opened = open_store(store)
            spec = load_stored(study, overrides, opened)
            frames = _of_study(spec, opened, trees, only, limit, fraction or 0.0)
        elif fraction is not None:
            raise SpecError("--fraction goes by a study's order of heads: give a STUDY alone")
        elif study is None and encoder is not None and (text is None) != (trees is None):
            frames = _of_file(encoder, text, trees, only, limit)
        else:
            raise SpecError(
                "give a STUDY, or --encoder with --text or --trees, and not more than that"
            )
        _print(console, frames)
        if out is not None:
            try:
                out.mkdir(parents=True, exist_ok=True)
                for name, frame in frames.items():
                    write_atomically(out / f"{name}.parquet", frame.to_parquet(index=False))
                    say(console, f"Written to {out / f'{name}.parquet'}")
            except OSError as error:
                raise SpecError(
                    f"{out} cannot be written ({error.strerror}): give another folder with --out"
                ) from None


def _print(console: Console, frames: dict[str, pd.DataFrame]) -> None:
    from papa.reporting.described import described_tables

    for section in described_tables(frames):
        settings = {"title": section.heading, "caption": section.note}
        print_table(console, section.headings, section.rows, **settings)


def _of_file(
    encoder: str, text: Path | None, trees: Path | None, only: list[str] | None, limit: int
) -> dict[str, pd.DataFrame]:
    from papa.corpora.local_files import format_of, read_file
    from papa.corpora.treebank import read_trees
    from papa.descriptions.seen import TEXTS
    from papa.descriptions.table import chosen
    from papa.library.describing import describe as described
    from papa.library.describing import describe_trees
    from papa.library.encoder import load_encoder
    from papa.library.inputs import require_columns

    names = chosen(only, trees is not None)
    if trees is not None:
        frames = describe_trees(load_encoder(encoder), read_trees(trees)[:limit], names)
    else:
        assert text is not None
        table = read_file(text, format_of(text) or "text", header=True)
        require_columns(table, {"text": "text"})
        frames = described(load_encoder(encoder), table.rows.slice(0, limit), names)
    source = (trees or text or Path()).name
    for frame in frames.values():
        frame.attrs[TEXTS] = [{"source": source} | frame.attrs[TEXTS][0]]
    return frames


def _of_study(
    study: StudySpec,
    store: Store,
    trees: Path | None,
    only: list[str] | None,
    limit: int,
    fraction: float,
) -> dict[str, pd.DataFrame]:
    """Describe a study; what is told is kept beside its results, and shown in its report."""
    from papa.study.describe import describe_study, keep_described
    from papa.study.stored import StoredStudy

    stored = StoredStudy(study, store)
    frames = describe_study(stored, only, limit, trees, fraction)
    say(Console(), f"Written to {keep_described(stored, frames)}")
    return frames
