"""What ``papa export`` does: ``papa.export`` with a cell of a finished study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from flows.terminal import say
from papa.errors import SpecError, joined, nearest_first
from papa.spec.orders import Head
from papa.spec.task import UNLABELLED_METRICS
from papa.spec.values import REUSED
from papa.study.manifest import CellEntry, FinishedStudy

_LINE = ("encoder", "task", "constants", "order")
"""What cells have in common that differ in their fraction alone."""


def export_cell(
    finished: FinishedStudy,
    wanted: Mapping[str, str],
    folder: Path,
    console: Console,
    *,
    fraction: float | None = None,
    max_drop: float | None = None,
) -> None:
    """Write the cell with the ``wanted`` names as a folder, at a fraction, or with the most
    constant heads whose drop is surely within ``max_drop``, a share.
    """
    from transformers import AutoConfig

    import papa
    from papa.encoders.reference import load_tokenizer
    from papa.encoders.weights import load_reference
    from papa.exported import check_family
    from papa.probes.own_model import own_class

    line = _line(finished, wanted)
    if max_drop is not None:
        fraction = _within(_rows(finished, line), max_drop)
    cell = next((cell for cell in line if abs(cell.fraction - (fraction or 0)) < 1e-6), None)
    if cell is None:
        fractions = joined(f"{cell.fraction:g}" for cell in line)
        raise SpecError(f"the study has no fraction {fraction:g}: give one of {fractions}")
    heads = _constant_heads(finished, cell)
    encoder = finished.encoder_here(cell.encoder)
    check_family(AutoConfig.from_pretrained(encoder.folder))
    task = finished.task(cell.task)
    layout, own = finished.study.layout, task.head == "own"
    if task.kind == "pair" and layout.segment_ids == "stay":
        raise SpecError("pairs have no export under segment_ids: stay: run the study with follow")
    head, tokenizer = own_class(task, encoder) if own else "AutoModel", load_tokenizer(encoder)
    if task.kind == "text" and layout.one_text_truncation == "half":
        tokenizer.model_max_length = task.slots // 2 + 1
    with console.status("writing, and measuring speed …"):
        papa.export(
            cast(Any, load_reference(encoder, head=head, attention="sdpa")[0]).eval(),
            tokenizer,
            heads,
            finished.read_constants(cell),
            folder,
            pairs=task.kind == "pair",
            positions="tokens" if own else "slots",
            study={
                "name": finished.manifest.study,
                **cell.model_dump(exclude={"probes"}),
                "found": _findings(finished, cell),
            },
        )
    say(console, (folder / "README.md").read_text().partition("\n---\n")[2].strip())
    say(console, f"\nWritten to {folder}.")


def _line(finished: FinishedStudy, wanted: Mapping[str, str]) -> list[CellEntry]:
    """The cells with these names, in full or as in tables; they differ in their fraction alone."""
    full = {label: of.name for label, of in finished.manifest.encoders.items()}
    cells = list(finished.manifest.cells)
    for what in _LINE:
        names = {getattr(cell, what) for cell in cells}
        name = wanted.get(what)
        if name is None and len(names) > 1:
            raise SpecError(f"the study has several: give --{what}, one of {joined(names)}")
        chosen = {one for one in names if name in (None, one, full.get(one))}
        if not chosen:
            raise SpecError(f"--{what} {name}: the study has {nearest_first(str(name), names)}")
        cells = [cell for cell in cells if getattr(cell, what) in chosen]
    return cells


def _rows(finished: FinishedStudy, cells: Sequence[CellEntry]) -> list[dict[str, Any]]:
    """The rows of the summary of some cells, the fewest constant heads first."""
    keys = {(*cell.line, round(cell.fraction, 6)) for cell in cells}
    rows = finished.summary.sort_values("constant_heads").to_dict("records")
    return [
        row for row in rows if (*(row[name] for name in _LINE), round(row["fraction"], 6)) in keys
    ]


def _within(rows: Sequence[Mapping[str, Any]], max_drop: float) -> float:
    """The smallest fraction whose drop is surely within a share: up to the first whose interval's
    upper end is not, so that the chance of a wrong one stays that of a single test.
    """
    drop, first = f"within a drop of {100 * max_drop:g} %", rows[0]
    reason = next((row["reason"] for row in rows if row["reason"]), "")
    if reason or first["seeds"] == 1:
        reason = reason or "one seed has no interval"
        raise SpecError(f"the study cannot tell what stays {drop}, as {reason}")
    beyond = next(
        (row for row in rows if row["fraction"] < 1 and not row["drop_high"] <= max_drop), None
    )
    within = [
        row for row in rows if beyond is None or row["constant_heads"] < beyond["constant_heads"]
    ]
    if within[-1]["fraction"] < 1:
        return float(within[-1]["fraction"])
    share = 1 - (beyond["share_of_heads"] if beyond else 1)
    raise SpecError(
        f"no fraction of the study is surely {drop}: add {1 - share / 2:.4g} to its fractions, or "
        "more seeds or validation rows, and run it"
    )


def _constant_heads(finished: FinishedStudy, cell: CellEntry) -> tuple[Head, ...]:
    """The heads of a cell that is one encoder."""
    kind, heads, fault = finished.constants(cell), cell.constant_heads, ""
    if heads == ():
        fault = "no head is constant in it: give a fraction below 1"
    elif finished.encoder(cell.encoder).key_heads is not None:
        fault = f"'{cell.encoder}' is a decoder: hold its heads constant with papa.ablated"
    elif kind.is_trained:
        fault = f"'{cell.constants}' are trained with the probe and are not kept"
    elif kind.kind == REUSED:
        fault = f"'{cell.constants}' heads still depend on the text"
    elif len({probe.constants for probe in cell.probes}) > 1:
        fault = f"'{cell.constants}' draws other inputs for each seed"
    elif heads is None:
        fault = f"order '{cell.order}' makes other heads constant for each seed"
    if fault or not heads:
        raise SpecError(f"this cell cannot be exported: {fault}")
    return heads


def _findings(finished: FinishedStudy, cell: CellEntry) -> dict[str, str]:
    """What the study found of the cell, and of the model's own use with the same heads."""
    same = [
        one
        for one in finished.manifest.cells
        if (one.encoder, one.fraction) == (cell.encoder, cell.fraction)
        and (one.constants, one.constant_heads) == (cell.constants, cell.constant_heads)
    ]
    (row,) = _rows(finished, [cell])
    sure = "the drop is sure" if row["drop_low"] > 0 else "no drop is sure"
    baselines = {"always one answer": "always_one_answer", "word embeddings": "word_embeddings"}
    return {
        f"Score ({row['metric']}, {row['seeds']} seeds)": _interval(row, "mean", "low", "high"),
        "Original": f"{row['original']:.3f}",
        "Relative drop": _interval(row, "relative_drop", "drop_low", "drop_high"),
        "Baselines": ", ".join(
            f"{said} {row[name]:.3f}" for said, name in baselines.items() if row[name] == row[name]
        ),
        "Verdict": f"inconclusive: the original {row['reason']}" if row["reason"] else sure,
    } | {
        f"Own use, {own['task']} ({own['metric']})": _interval(own, "mean", "low", "high")
        for own in _rows(finished, same)
        if own["metric"] in UNLABELLED_METRICS
    }


def _interval(row: Mapping[str, Any], *names: str) -> str:
    mean, low, high = (row[name] for name in names)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"
