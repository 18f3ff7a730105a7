"""``papa export``: a cell of a finished study as an ordinary model of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pandas import DataFrame
from rich.console import Console

import papa
from papa.errors import SpecError, joined, nearest_first, printable
from papa.flows.cli import options
from papa.flows.cli.options import option
from papa.models.native import class_of_native_head
from papa.models.reference import load_tokenizer
from papa.reporting.tables import summary_markdown
from papa.scores.drops import MaxDrop
from papa.scores.verdicts import heads_within
from papa.spec.columns import LINE
from papa.spec.orders import default_order
from papa.spec.substitutes import entry_of
from papa.spec.task import UNLABELLED_METRICS
from papa.tasks.manifest import CellEntry, FinishedStudy

_OPTIONS = {
    "encoder": "--encoder",
    "task": "--task",
    "constants": "--substitute",
    "order": "--order",
}
"""The option that chooses a value of each column."""
_Encoder = Annotated[
    str | None, option(metavar="NAME", help="Encoder of the study (default: its only one).")
]
_Task = Annotated[
    str | None, option(metavar="NAME", help="Task of the study (default: its only one).")
]


def export(
    study: options.Finished,
    to: Annotated[Path, option("--to", metavar="FOLDER", help="Folder to write to; new or empty.")],
    keep: Annotated[
        float | None, option(metavar="SHARE", help="Share of heads that stay input-dependent.")
    ] = None,
    max_drop: Annotated[
        str | None,
        option(
            "--max-drop",
            metavar="DROP",
            help="Largest drop, instead of --keep: 1%, or for a loss 0.05nats.",
        ),
    ] = None,
    encoder: _Encoder = None,
    task: _Task = None,
    substitute: Annotated[
        str | None, option(metavar="NAME", help="Substitute (default: average, or the only one).")
    ] = None,
    order: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="Head order (default: effect for a native head, lambda, or the only one).",
        ),
    ] = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
) -> None:
    """Export an encoder with constant heads to a folder that transformers loads.

    Give --keep, or --max-drop for the most constant heads whose drop is significantly within it.
    """
    with options.one_sentence():
        if (keep is None) == (max_drop is None):
            raise SpecError("give either --keep, such as 0.125, or --max-drop, such as 1%")
        names = {"encoder": encoder, "task": task, "constants": substitute, "order": order}
        wanted = {column: name for column, name in names.items() if name is not None}
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
    """Write the cell with the ``wanted`` names that keeps a share of heads, or whose drop is within
    a limit with the most constant heads.
    """
    # It imports transformers, which help and a refusal do without.
    from papa.models.weights import load_model

    line = _line(finished, wanted)
    share = keep if max_drop is None else _within(line, max_drop)
    names = tuple(line[LINE].iloc[0])
    cells = {entry.fraction: entry for entry in finished.manifest.cells if entry.line == names}
    cell = next(
        (entry for fraction, entry in cells.items() if abs(fraction - (share or 0)) < 1e-6), None
    )
    if cell is None:
        known = joined(f"{fraction:g}" for fraction in cells)
        raise SpecError(f"--keep {share:g}: the study has {known}")
    heads = _constant_heads(finished, cell)
    task = finished.task(cell.task)
    layout = finished.study.layout
    encoder = finished.encoder_here(cell.encoder)
    constants = finished.read_substitute(cell)
    head = class_of_native_head(task, encoder) if task.head == "native" else "AutoModel"
    model = load_model(encoder, head=head)
    model.eval()
    tokenizer = load_tokenizer(encoder)
    if task.kind == "text" and layout.one_text_truncation == "half":
        tokenizer.model_max_length = task.slots // 2 + 1
    study = {
        "name": finished.manifest.study,
        "base": finished.manifest.encoders[cell.encoder].name,
        **cell.model_dump(exclude={"probes"}),
        "found": _measured(finished, cell),
    }
    with Console().status("writing …"):
        papa.export(
            model,
            tokenizer,
            heads=heads,
            substitute=constants,
            folder=folder,
            pairs=task.kind == "pair",
            study=study,
        )
    card = (folder / "README.md").read_text(encoding="utf-8")
    text = card.partition("\n---\n")[2].strip()
    typer.echo("\n".join(map(printable, text.split("\n"))))
    typer.echo(f"\nWritten to {folder}.")


def _line(finished: FinishedStudy, wanted: Mapping[str, str]) -> DataFrame:
    """Return the rows of a study's summary with these names."""
    rows = finished.summary
    for column in LINE:
        names = list(rows[column].unique())
        preferred = names if len(names) == 1 else _preferred(column, rows, finished)
        default = next((name for name in preferred if name in names), None)
        name = wanted.get(column, default)
        option_name = _OPTIONS[column]
        if name is None:
            raise SpecError(f"the study has {joined(names)}: choose one with {option_name}")
        if name not in names:
            raise SpecError(f"{option_name} {name}: the study has {nearest_first(name, names)}")
        rows = rows[rows[column] == name]
    return rows


def _preferred(column: str, rows: DataFrame, finished: FinishedStudy) -> list[str]:
    """Return the names in a column of which the first that a study has is exported."""
    if column == "constants":
        return ["average"]
    if column == "order":
        task = finished.task(rows["task"].iloc[0])
        # A study of probes and native heads that names no order has λ for both.
        return [default_order([task.head]), "lambda"]
    return []


def _within(line: DataFrame, max_drop: MaxDrop) -> float:
    """Return the smallest fraction whose drop is significantly within a limit."""
    verdicts = heads_within(line, {}, max_drop)
    drop = f"within {max_drop.label(line['metric'].iloc[0])}"
    reason = next(iter(verdicts["reason"]), "")
    if reason:
        raise SpecError(f"the study does not show which heads stay {drop}: {reason}")
    is_within = verdicts["verdict"] == "within"
    if is_within.any():
        return float(verdicts[is_within]["fraction"].iloc[-1])
    largest_share = max(line["share_of_heads"][line["fraction"] < 1], default=0)
    raise SpecError(
        f"no share of constant heads has a drop significantly {drop}: add "
        f"{(1 + largest_share) / 2:.4g} to the study's keep, or more seeds or validation "
        "rows, and run the study again"
    )


def _constant_heads(finished: FinishedStudy, cell: CellEntry) -> tuple[tuple[int, int], ...]:
    """Return the heads of a cell that can be exported."""
    from papa.models.supported import family_of

    model_type = finished.manifest.encoders[cell.encoder].model_type
    origin = entry_of(finished.substitute_of(cell).kind).origin
    segment_ids = finished.study.layout.segment_ids
    heads = cell.constant_heads
    fault = ""
    if heads == ():
        fault = "no head is constant: give --keep below 1"
    elif heads is None:
        fault = (
            f"order '{cell.order}' has other constant heads for each seed: choose another --order"
        )
    elif family_of(model_type) is None:
        fault = (
            f"'{cell.encoder}' is a {model_type}, and only encoders of those that 'papa models' "
            "lists can be exported: use papa.ablated"
        )
    elif origin not in ("slots", "average"):
        fault = (
            f"'{cell.constants}' has no constant matrices that all seeds share: choose "
            "another --substitute"
        )
    elif finished.task(cell.task).kind == "pair" and segment_ids == "stay":
        fault = "its pairs have segment_ids: stay: run the study with segment_ids: follow"
    if fault:
        raise SpecError(f"this cell cannot be exported: {fault}")
    return heads or ()


def _measured(finished: FinishedStudy, cell: CellEntry) -> str:
    """Return what the study found with these heads, on its task and of the model's own use."""
    rows = finished.summary
    lines_with_these_heads = [
        entry.line
        for entry in finished.manifest.cells
        if entry.encoder == cell.encoder
        and entry.constants == cell.constants
        and entry.constant_heads == cell.constant_heads
        and (entry.line == cell.line or entry.task != cell.task)
    ]
    is_shown = rows["metric"].isin(UNLABELLED_METRICS) | (rows["task"] == cell.task)
    is_shown &= rows.set_index(LINE).index.isin(lines_with_these_heads)
    is_shown &= (rows["fraction"] == 1) | ((rows["fraction"] - cell.fraction).abs() < 1e-6)
    return summary_markdown(rows[is_shown])
