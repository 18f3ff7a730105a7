"""What ``papa describe`` does: tell what an encoder's heads do on a file of texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.options import Verbose, one_sentence
from flows.terminal import say

if TYPE_CHECKING:
    import pandas as pd


def describe(
    encoder: Annotated[
        str,
        typer.Option("--encoder", metavar="NAME", help="A name or a folder.", show_default=False),
    ],
    text: Annotated[
        Path,
        typer.Option(
            "--text",
            metavar="FILE",
            help="A text a line, or a table with a column 'text'.",
            show_default=False,
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="similarity, separators or outliers; may be repeated. All without it.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The first texts alone.")] = 200,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Write a Parquet file for each.", show_default=False
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Tell what an encoder's heads do on some texts, and what of it is constant."""
    with one_sentence(verbose):
        from papa.corpora.local_files import format_of, read_file
        from papa.library.describing import describe as described
        from papa.library.encoder import load_encoder
        from papa.library.inputs import require_columns

        table = read_file(text, format_of(text) or "text", header=True)
        require_columns(table, {"text": "text"})
        if out is not None and out.exists() and not out.is_dir():
            from papa.errors import SpecError

            raise SpecError(f"--out {out} is a file, expected a folder: give another name")
        console = Console()
        frames = described(load_encoder(encoder), table.rows.slice(0, limit), only)
        for name, frame in frames.items():
            console.print(*by_layer(name, frame), sep="\n")
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                frame.to_parquet(out / f"{name}.parquet", index=False)
                say(console, f"Written to {out / f'{name}.parquet'}")


def by_layer(name: str, frame: pd.DataFrame) -> Iterator[Table]:
    """A table for each measure, of its means in each layer; of pairs of heads, those within a
    layer.
    """
    if "other_layer" in frame:
        frame = frame[frame["layer"] == frame["other_layer"]]
    for measure in (column for column in frame if frame[column].dtype.kind == "f"):
        means = frame.pivot_table(index="layer", columns="attention", values=measure, sort=False)
        table = Table("layer", title=f"{name}: {measure}, mean by layer")
        for attention in means.columns:
            table.add_column(attention, justify="right")
        for layer, row in zip(means.index, means.to_numpy(), strict=True):
            table.add_row(str(layer), *(f"{value:.3f}" for value in row))
        yield table
