"""``papa describe``: what heads do, an encoder's on a file of texts or a study's on its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import papa
from papa.errors import SpecError
from papa.files import write_atomically
from papa.flows.cli import options
from papa.flows.cli.options import argument, option
from papa.reporting.tables import described_tables
from papa.text.table import format_of, read_file

_TEXTS = "Texts for --encoder: one per line, or a table with a column 'text'."
_TREES = "Sentences with gold trees: CoNLL-U, or a table with tokens, head and deprel."
_ONLY = "Description, such as norms; may be repeated (default: all)."
_KEEP = "Share of heads that stay input-dependent, by the first order of STUDY (default: 0)."


def describe(
    study: Annotated[
        str | None,
        argument(metavar="STUDY", help="Finished study: its name in the store, or its file."),
    ] = None,
    encoder: Annotated[
        str | None,
        option(
            "--encoder",
            metavar="NAME",
            help="Encoder to describe instead of STUDY: a name or a folder.",
        ),
    ] = None,
    text: Annotated[Path | None, option("--text", metavar="FILE", help=_TEXTS)] = None,
    trees: Annotated[Path | None, option("--trees", metavar="FILE", help=_TREES)] = None,
    only: Annotated[list[str] | None, option("--only", metavar="NAME", help=_ONLY)] = None,
    keep: Annotated[float | None, option("--keep", metavar="SHARE", help=_KEEP)] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Largest number of texts to read.")
    ] = 200,
    out: Annotated[
        Path | None, option("--out", metavar="FILE", help="Parquet file to write every number to.")
    ] = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    verbose: options.Verbose = False,
) -> None:
    """Describe what heads do on texts, and how much of it is constant."""
    with options.one_sentence(verbose):
        # They import transformers, which help does without.
        from papa.descriptions.treebank import read_trees
        from papa.library.describe_study import describe_study

        if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
            raise SpecError(f"--out {out} cannot be written: give a file in an existing folder")
        if study is not None and encoder is None and text is None:
            finished = options.open_finished(store, study)
            frame = describe_study(finished, only, limit, trees, keep or 0.0)
        elif keep is not None:
            raise SpecError(
                "--keep needs a STUDY, whose head order it follows: give STUDY instead of --encoder"
            )
        elif study is None and encoder is not None and (text is None) != (trees is None):
            if text is not None:
                rows = read_file(text, format_of(text) or "text").rows
                frame = papa.describe(
                    papa.load_encoder(encoder), rows.slice(0, limit), descriptions=only
                )
            elif trees is not None:
                frame = papa.describe(
                    papa.load_encoder(encoder), read_trees(trees)[:limit], descriptions=only
                )
            frame.attrs["texts"][0]["source"] = (text or trees or Path()).name
        else:
            raise SpecError("give either STUDY, or --encoder with --text or --trees")
        for table in described_tables(frame):
            Console().print(table.terminal())
        if out is not None:
            write_atomically(out, frame.to_parquet(index=False))
            typer.echo(f"Written to {out}")
