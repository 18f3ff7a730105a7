"""``papa describe``: what heads do, an encoder's on a file of texts or a study's on its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

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
from flows.terminal import say
from papa.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd


def describe(
    study: Annotated[
        str | None,
        argument(metavar="[STUDY]", help="A finished study's YAML file, or its name in the store."),
    ] = None,
    encoder: Annotated[
        str | None, option("--encoder", metavar="NAME", help="A name or a folder; no study.")
    ] = None,
    text: Annotated[
        Path | None,
        option(
            "--text",
            metavar="FILE",
            help="With --encoder: a text a line, or a table with a column 'text'.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        option(
            "--only",
            metavar="NAME",
            help="similarity, separators or outliers; may be repeated. All without it.",
        ),
    ] = None,
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
            from papa.study.describe import describe_study
            from papa.study.stored import StoredStudy

            opened = open_store(store)
            stored = StoredStudy(load_stored(study, overrides, opened), opened)
            frames = describe_study(stored, only, limit)
        elif study is None and encoder is not None and text is not None:
            frames = _of_file(encoder, text, only, limit)
        else:
            raise SpecError("give a STUDY, or --encoder and --text, and not both")
        for name, frame in frames.items():
            for place, own in _parts(frame):
                console.print(*by_layer(f"{place}{name}", own), sep="\n")
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                frame.to_parquet(out / f"{name}.parquet", index=False)
                say(console, f"Written to {out / f'{name}.parquet'}")


def _of_file(
    encoder: str, text: Path, only: list[str] | None, limit: int
) -> dict[str, pd.DataFrame]:
    from papa.corpora.local_files import format_of, read_file
    from papa.library.describing import describe as described
    from papa.library.encoder import load_encoder
    from papa.library.inputs import require_columns

    table = read_file(text, format_of(text) or "text", header=True)
    require_columns(table, {"text": "text"})
    return described(load_encoder(encoder), table.rows.slice(0, limit), only)


def _parts(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each encoder and task of a study, with what their titles begin with."""
    if "task" not in frame:
        yield "", frame
        return
    for (encoder, task), own in frame.groupby(["encoder", "task"], sort=False):
        yield f"{encoder} · {task} · ", own


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
