"""``papa describe``: what heads do, an encoder's on a file of texts or a study's on its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flows.cli.options import (
    DEFAULT_STORE,
    StoreAddress,
    Verbose,
    argument,
    one_sentence,
    open_store,
    option,
)
from flows.cli.terminal import say
from papa.errors import SpecError
from papa.storage.files import write_atomically

if TYPE_CHECKING:
    from pandas import DataFrame

    from papa.spec.orders import Head
    from papa.study.manifest import AverageEntry, FinishedStudy

_TEXTS = "With --encoder: a text a line, or a table with a column 'text'."
_TREES = "Sentences with gold trees: CoNLL-U, or a table with tokens, head and deprel."
_ONLY = "A description, such as norms; may be repeated. All without it."
_FRACTION = (
    "With STUDY: share of heads that stay input-dependent, by its first order; without it none."
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
        Path | None, option("--out", metavar="FILE", help="Write all numbers to a Parquet file.")
    ] = None,
    store: StoreAddress = DEFAULT_STORE,
    verbose: Verbose = False,
) -> None:
    """Tell what heads do on some texts, and what of it is constant."""
    with one_sentence(verbose):
        import papa
        from papa.corpora.local_files import format_of, read_file
        from papa.corpora.treebank import read_trees
        from papa.reporting.described import described_tables
        from papa.study.manifest import open_study

        if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
            raise SpecError(f"--out {out} cannot be written: give a file in a folder that exists")
        if study is not None and encoder is None and text is None:
            finished = open_study(open_store(store), study)
            frame = describe_study(finished, only, limit, trees, fraction or 0.0)
        elif fraction is not None:
            raise SpecError("--fraction goes by a study's order of heads: give a STUDY alone")
        elif study is None and encoder is not None and (text is None) != (trees is None):
            if text is not None:
                rows = read_file(text, format_of(text) or "text", header=True).rows
                frame = papa.describe(papa.load_encoder(encoder), rows.slice(0, limit), only)
            elif trees is not None:
                frame = papa.describe(papa.load_encoder(encoder), read_trees(trees)[:limit], only)
            frame.attrs["texts"][0]["source"] = (text or trees or Path()).name
        else:
            raise SpecError(
                "give a STUDY, or --encoder with --text or --trees, and not more than that"
            )
        for table in described_tables(frame):
            Console().print(table.terminal())
        if out is not None:
            write_atomically(out, frame.to_parquet(index=False))
            say(Console(), f"Written to {out}")


def describe_study(
    finished: FinishedStudy,
    names: Sequence[str] | None,
    limit: int,
    trees: Path | None,
    fraction: float,
) -> DataFrame:
    """Descriptions of the first validation rows of every task, with the study's own average as the
    constant matrices, and of sentences with gold trees: a frame as ``papa.describe`` gives it, with
    the encoder and the task.
    """
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.corpora.treebank import lay_out, read_trees
    from papa.descriptions.table import OF_TREES, chosen, described, joined
    from papa.encoders.encoder import load_encoder
    from papa.encoders.reference import load_tokenizer
    from papa.study.stages.tokenise import open_corpus

    wanted, of_trees = chosen(names, trees is not None), trees.name if trees else ""
    held = finished.manifest
    entries = [entry for entry in held.averages if not held.encoders[entry.encoder].causal]
    if not entries:
        raise SpecError(
            f"study '{held.study}' has no average of an encoder to describe its heads with: run it "
            "with average among its constants"
        )
    sources = {
        "validation rows": [name for name in wanted if name not in OF_TREES],
        of_trees: [name for name in wanted if name in OF_TREES],
    }
    sentences = read_trees(trees)[:limit] if trees and sources[of_trees] else []
    # All that can be wrong is found before the first is described.
    constant = [_constant_heads(finished, entry, fraction) for entry in entries]
    frames, records = {}, []
    for entry, heads in zip(entries, constant, strict=True):
        of = {"encoder": entry.encoder, "task": entry.task}
        if heads is not None:
            of |= {"order": finished.study.orders[0], "fraction": f"{fraction:g}"}
        encoder = finished.encoder_here(entry.encoder)
        tokenizer, folder = load_tokenizer(encoder), finished.artifact(entry.artifact).folder
        special_tokens = special_tokens_of(tokenizer)
        split = open_corpus(finished.artifact(entry.text)).split("validation")
        for source, asked in sources.items():
            if not asked:
                continue
            laid = None
            if source == of_trees:
                laid = lay_out(sentences, tokenizer, special_tokens, entry.slots)
            frame = described(
                load_encoder(encoder),
                ConstantMatrices.load(folder, encoder=encoder, slots=entry.slots),
                laid.batches(1) if laid else micro_batches(split, split.rows[:limit], 1),
                special_tokens.sep,
                asked,
                laid=laid,
                heads=heads,
            )
            records.append({**of, "source": source, **frame.attrs["texts"][0]})
            frames[entry.encoder, entry.task, source] = frame
    return joined(frames, ["encoder", "task", "source"], records).drop(columns="source")


def _constant_heads(
    finished: FinishedStudy, entry: AverageEntry, fraction: float
) -> Sequence[Head] | None:
    """The constant heads of the cell of a fraction; None where all are."""
    if fraction == 0:
        return None
    study, order = finished.manifest.study, finished.study.orders[0]
    line = entry.encoder, entry.task, "average", order
    alike = {cell.fraction: cell for cell in finished.manifest.cells if cell.line == line}
    cell = next((cell for at, cell in alike.items() if abs(at - fraction) < 1e-6), None)
    if cell is None:
        raise SpecError(
            f"study '{study}' has no cell of {entry.encoder} on {entry.task} with average, order "
            f"'{order}' and fraction {fraction:g}: give --fraction "
            f"{' or '.join(f'{at:g}' for at in alike)}"
        )
    if cell.constant_heads is None:
        raise SpecError(
            f"order '{order}' makes other heads constant for each seed of study '{study}': leave "
            "--fraction out, which makes all heads constant"
        )
    return cell.constant_heads
