"""``papa describe``: what an encoder's heads do on a file of texts."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import papa
from papa.errors import SpecError
from papa.files import write_atomically
from papa.flows.cli import options
from papa.flows.cli.options import option
from papa.reporting.described import described_tables
from papa.text.table import format_of, read_file

_TEXTS = "Texts: one per line, or a table with a column 'text'."
_TREES = "Sentences with gold trees: CoNLL-U, or a table with tokens, head and deprel."
_ONLY = "Description, such as norms; may be repeated (default: all)."


def describe(
    encoder: Annotated[
        str, option("--encoder", metavar="NAME", help="Encoder to describe: a name or a folder.")
    ],
    text: Annotated[Path | None, option("--text", metavar="FILE", help=_TEXTS)] = None,
    trees: Annotated[Path | None, option("--trees", metavar="FILE", help=_TREES)] = None,
    only: Annotated[list[str] | None, option("--only", metavar="NAME", help=_ONLY)] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Largest number of texts to read.")
    ] = 200,
    out: Annotated[
        Path | None, option("--out", metavar="FILE", help="Parquet file to write every number to.")
    ] = None,
) -> None:
    """Describe what heads do on texts, and how much of it is constant."""
    with options.one_sentence():
        # It imports transformers, which help does without.
        from papa.descriptions.treebank import check_trees

        if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
            raise SpecError(f"--out {out} cannot be written: give a file in an existing folder")
        file = text or trees
        if file is None or (text and trees):
            raise SpecError("give either --text or --trees")
        table = read_file(file, format_of(file) or "text")
        if trees:
            check_trees(table, needs_heads=format_of(file) == "conllu")
        data = table.rows.slice(0, limit)
        frame = papa.describe(papa.load_encoder(encoder), data, descriptions=only)
        frame.attrs["texts"][0]["source"] = file.name
        for written in described_tables(frame):
            Console().print(written.terminal())
        if out is not None:
            write_atomically(out, frame.to_parquet(index=False))
            typer.echo(f"Written to {out}")
