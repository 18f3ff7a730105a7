"""``papa export``: a cell of a finished study as an ordinary model of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from papa.errors import SpecError, joined, nearest_first, printable
from papa.flows.cli import options
from papa.flows.cli.options import option
from papa.scores.drops import MaxDrop

if TYPE_CHECKING:
    from pandas import DataFrame

    from papa.tasks.manifest import CellEntry, FinishedStudy

_LINE = ["encoder", "task", "constants", "order"]
_OPTIONS = {
    "encoder": "--encoder",
    "task": "--task",
    "constants": "--substitute",
    "order": "--order",
}
"""The option that chooses a value of each column."""
_PREFERRED = {"constants": "average", "order": "lambda"}
"""What is exported of a study that has it among others."""
_OnlyOne = Annotated[str | None, option(help="The study's only one without it.")]


def export(
    study: options.Finished,
    to: Annotated[Path, option("--to", metavar="FOLDER", help="A new or empty folder.")],
    keep: Annotated[
        float | None, option(metavar="SHARE", help="Share of heads that stay input-dependent.")
    ] = None,
    max_drop: Annotated[
        str | None,
        option(
            "--max-drop",
            metavar="DROP",
            help="Instead of it: a drop such as 1%, or of a loss such as 0.05nats.",
        ),
    ] = None,
    encoder: _OnlyOne = None,
    task: _OnlyOne = None,
    substitute: Annotated[
        str | None, option(metavar="NAME", help="Substitute (default: average, or the only one).")
    ] = None,
    order: Annotated[
        str | None, option(help="Head order (default: lambda, or the only one).")
    ] = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    verbose: options.Verbose = False,
) -> None:
    """Write an encoder with constant heads, from a finished study, as a folder that transformers
    loads.

    Give --keep, or --max-drop for the most constant heads whose drop surely stays within it.
    """
    with options.one_sentence(verbose):
        if (keep is None) == (max_drop is None):
            raise SpecError("give either --keep, such as 0.125, or --max-drop, such as 1%")
        names = {"encoder": encoder, "task": task, "constants": substitute, "order": order}
        wanted = {what: name for what, name in names.items() if name is not None}
        limit = None if max_drop is None else MaxDrop.parse(max_drop, "--max-drop")
        finished = options.open_finished(store, study)
        export_cell(finished, wanted, to, keep=keep, max_drop=limit)


def export_cell(
    finished: FinishedStudy,
    wanted: Mapping[str, str],
    folder: Path,
    *,
    keep: float | None = None,
    max_drop: MaxDrop | None = None,
) -> None:
    """Write the cell with the ``wanted`` names at a fraction, or with the most constant heads."""
    import papa
    from papa.exported import family_to_export
    from papa.models.native import native_class
    from papa.models.reference import load_tokenizer
    from papa.models.weights import load_model

    line = _line(finished.summary, wanted)
    at = keep if max_drop is None else _within(line, max_drop)
    named = tuple(line[_LINE].iloc[0])
    cells = {one.fraction: one for one in finished.manifest.cells if one.line == named}
    cell = next((one for share, one in cells.items() if abs(share - (at or 0)) < 1e-6), None)
    if cell is None:
        known = joined(f"{share:g}" for share in cells)
        raise SpecError(f"--keep {at:g}: the study has {known}")
    heads, task = _constant_heads(finished, cell), finished.task(cell.task)
    family_to_export(finished.manifest.encoders[cell.encoder].model_type)
    layout, pairs = finished.study.layout, task.kind == "pair"
    if pairs and layout.segment_ids == "stay":
        raise SpecError("pairs have no export under segment_ids: stay: run the study with follow")
    encoder, constants = finished.encoder_here(cell.encoder), finished.read_constants(cell)
    head = native_class(task, encoder) if task.head == "native" else "AutoModel"
    model: Any = load_model(encoder, head=head, attention="sdpa").eval()
    tokenizer = load_tokenizer(encoder)
    if task.kind == "text" and layout.one_text_truncation == "half":
        tokenizer.model_max_length = task.slots // 2 + 1
    found = _found(finished, cell)
    study = {"name": finished.manifest.study, **cell.model_dump(exclude={"probes"}), "found": found}
    with Console().status("writing, and measuring speed …"):
        papa.export(
            model,
            tokenizer,
            heads=heads,
            substitute=constants,
            folder=folder,
            pairs=pairs,
            study=study,
        )
    text = (folder / "README.md").read_text().partition("\n---\n")[2].strip()
    typer.echo("\n".join(map(printable, text.split("\n"))))
    typer.echo(f"\nWritten to {folder}.")


def _line(rows: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    """The rows of a summary with these names."""
    for what in _LINE:
        names = list(rows[what].unique())
        default = names[0] if len(names) == 1 else _PREFERRED.get(what)
        name = wanted.get(what, default)
        if name is None or (what not in wanted and name not in names):
            raise SpecError(f"the study has {joined(names)}: choose one with {_OPTIONS[what]}")
        if name not in names:
            raise SpecError(f"{_OPTIONS[what]} {name}: the study has {nearest_first(name, names)}")
        rows = rows[rows[what] == name]
    return rows


def _within(line: DataFrame, max_drop: MaxDrop) -> float:
    """The smallest fraction whose drop is significantly within a limit."""
    from papa.scores.summary import heads_at

    found = heads_at(line, {}, max_drop)
    drop = f"within {max_drop.label(line['metric'].iloc[0])}"
    if reason := next(iter(found["reason"]), ""):
        raise SpecError(f"the study cannot tell what stays {drop}, as {reason}")
    if (within := found["verdict"] == "within").any():
        return float(found[within]["fraction"].iloc[-1])
    most = max(line["share_of_heads"][line["fraction"] < 1], default=0)
    raise SpecError(
        f"no fraction of the study is surely {drop}: add {(1 + most) / 2:.4g} to its keep, or "
        "more seeds or validation rows, and run it"
    )


def _constant_heads(finished: FinishedStudy, cell: CellEntry) -> tuple[tuple[int, int], ...]:
    """The heads of a cell that is one encoder with constant matrices."""
    from papa.spec.substitutes import entry_of

    kind, heads, fault = finished.constants(cell), cell.constant_heads, ""
    if heads == ():
        fault = "no head is constant in it: give --keep below 1"
    elif finished.manifest.encoders[cell.encoder].key_heads is not None:
        fault = f"'{cell.encoder}' is a decoder: hold its heads constant with papa.ablated"
    elif heads is None:
        fault = f"order '{cell.order}' makes other heads constant for each seed"
    elif not entry_of(kind.kind).is_matrix:
        fault = f"'{cell.constants}' are not constant matrices that all seeds share"
    if fault:
        raise SpecError(f"this cell cannot be exported: {fault}")
    return heads or ()


def _found(finished: FinishedStudy, cell: CellEntry) -> str:
    """What the study found with these heads, on its task and of the model's own use."""
    from papa.reporting.tables import summary_markdown
    from papa.spec.task import UNLABELLED_METRICS

    rows, heads = finished.summary, (cell.encoder, cell.constants, cell.constant_heads)
    same = [
        one.line
        for one in finished.manifest.cells
        if (one.encoder, one.constants, one.constant_heads) == heads
        and (one.line == cell.line or one.task != cell.task)
    ]
    told = rows["metric"].isin(UNLABELLED_METRICS) | (rows["task"] == cell.task)
    told &= rows.set_index(_LINE).index.isin(same)
    told &= (rows["fraction"] == 1) | ((rows["fraction"] - cell.fraction).abs() < 1e-6)
    return summary_markdown(rows[told])
