"""What ``papa export`` does: find a finished cell of a study, write it as a folder, say what it
cost and gained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from flows.retrained import FinishedCell, int8_scores, trained_probe
from flows.terminal import print_table, say
from papa.errors import SpecError, meant
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.study.constants import Outputs, ReusedBefore
from papa.study.here import ThisProcess
from papa.study.own import Own
from papa.study.probe import Probe, read_scores
from papa.study.store import Store
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from papa.attention.replacement import Constants

By = Literal["slot", "relative"]


@dataclass(frozen=True)
class ExportRequest:
    """The cell asked for, by names in full or as in the study's tables; None takes the study's only
    one, and a fraction that is chosen by its drop.
    """

    encoder: str | None
    task: str | None
    constants: str
    order: str
    fraction: float | None


def export_cell(
    study: StudySpec,
    store: Store,
    request: ExportRequest,
    folder: Path,
    console: Console,
    *,
    by: By = "slot",
    onnx: bool = False,
    int8: bool = False,
) -> None:
    """Write the cell asked for of a finished study to ``folder`` and print the report.

    ``by`` says what its heads' constants go by: the study's, by slot, or new ones by distance.
    """
    from transformers.utils import logging

    from papa.corpora import load_corpus
    from papa.corpora.tokens import special_tokens_of
    from papa.encoders.encoder import load_encoder
    from papa.encoders.precision import check_device
    from papa.encoders.reference import load_tokenizer
    from papa.exporting import InputLayout, export_encoder
    from papa.exporting.distances import average_by_distance
    from papa.exporting.gains import study_score
    from papa.exporting.writing import check_free

    check_free(folder)
    if by == "relative" and int8:
        raise SpecError(
            "--int8 scores the study's own constants, by slot, and --by relative makes others: "
            "leave one of them out, and give int8=True to papa.load_exported"
        )
    stored = StoredStudy(study, store)
    cell = _find(stored, request)
    step, summary = exportable_step(stored, cell), _summary(stored, cell)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    corpus = load_corpus(step.corpus.reference(store).folder)
    scores = read_scores(stored.found[step])
    split, special = corpus.split("validation"), special_tokens_of(load_tokenizer(step.encoder))
    execution, task = stored.inputs.study.execution, step.task
    if execution.device != "auto":
        check_device(execution.device)
    device = "cuda" if ThisProcess(execution.device).on_gpu else "cpu"
    told: dict[str, Any] = {}
    with console.status("writing …") as status:
        if by == "relative":
            layout = InputLayout.in_place(task.kind, step.encoder.positions, special)
            constants: Constants = average_by_distance(
                load_encoder(step.encoder, device),
                corpus.split("train"),
                layout,
                lambda done, total: status.update(f"averaging by distance, {done} of {total} …"),
            )
        else:
            layout = InputLayout.of(task.kind, task.slots, stored.inputs.study.layout, special)
            if isinstance(step, Own) and step.encoder.model_type != "modernbert":
                # As its own head was asked; ModernBERT's windows go by slots.
                layout = replace(layout, positions="tokens")
            constants = _constants(stored, step)
            finished = FinishedCell(stored, cell, step, corpus, constants, scores.constant_heads)
            classifier = trained_probe(finished, device, status)
            told = {
                "score": study_score(
                    summary,
                    precision=step.encoder.precision,
                    unseen_share=scores.unseen_share,
                    rows=len(split),
                    cut=corpus.metadata["texts_cut"]["validation"],
                    own_head=isinstance(step, Own) and not (task.of_embeddings or classifier),
                ),
                "int8": int8_scores(finished, status) if int8 else None,
                "classifier": classifier,
            }
        document = export_encoder(
            step.encoder,
            constants,
            scores.constant_heads,
            layout,
            folder,
            examples=split,
            study={"name": study.name, **asdict(cell)},
            device=device,
            onnx=onnx,
            progress=lambda done, total: status.update(f"measuring speed, {done} of {total} …"),
            **told,
        )
    _print(document, folder, console)


def exportable_step(stored: StoredStudy, cell: Cell) -> Probe | Own:
    """The step of a cell that can be exported, finished or not."""
    step, *others = stored.steps.cells[cell]
    if isinstance(step.constants, ReusedBefore):
        raise SpecError(
            f"'{cell.constants}' heads mix by the attention of the layer before, which is no "
            "constant: export --constants average or a control"
        )
    if others:
        drawn = isinstance(step.constants, Outputs) and step.constants.seed is not None
        what = f"'{cell.constants}' draws other inputs"
        if not drawn:
            what = f"order '{cell.order}' makes other heads constant"
        raise SpecError(
            f"{what} for each of the study's {1 + len(others)} seeds, so this cell is no one "
            f"encoder: export {'others' if drawn else 'another order'}, or run the study with one "
            "seed"
        )
    if step.trained:
        raise SpecError(
            "trained constants differ from seed to seed and are not kept: export --constants "
            "average or a control"
        )
    if step.encoder.causal:
        raise SpecError(
            f"'{step.encoder.name}' is a decoder, and exports are encoders: hold its heads "
            "constant with papa.ablated"
        )
    if step.constants is None:
        raise SpecError(
            "no head is constant in this cell, so there is nothing to export: give a fraction "
            "below 1"
        )
    return step


def _find(stored: StoredStudy, request: ExportRequest) -> Cell:
    study, cells, done = stored.inputs.study.name, stored.steps.cells, stored.cells
    if not done:
        raise SpecError(stored.nothing_found())
    names = {stored.inputs.labels[encoder]: encoder.name for encoder in stored.inputs.encoders}
    asked = {what: name for what, name in asdict(request).items() if name is not None}
    fraction = asked.pop("fraction", math.nan)

    def known_as(cell: Cell, what: str) -> set[str]:
        return {getattr(cell, what)} | ({names[cell.encoder]} if what == "encoder" else set())

    matching = [
        cell
        for cell in cells
        if all(name in known_as(cell, what) for what, name in asked.items())
        and abs(cell.fraction - fraction) < 1e-9
    ]
    if len(matching) > 1:
        raise SpecError(
            f"study '{study}' has {len(matching)} such cells: give --encoder and --task: "
            f"{_options(matching)}"
        )
    if not matching:
        unknown = [
            f", as it has no {what} '{name}'{meant(name, {getattr(cell, what) for cell in cells})}"
            for what, name in asked.items()
            if not any(name in known_as(cell, what) for cell in cells)
        ]
        raise SpecError(
            f"study '{study}' has no such cell{''.join(unknown[:1])}: it has {_options(done)}"
        )
    if matching[0] not in done:
        raise SpecError(
            f"this cell of '{study}' has not been run: run 'papa run' again, or give "
            f"{_options(done)}"
        )
    return matching[0]


def _options(cells: Sequence[Cell]) -> str:
    """The options that name some cells, once for each encoder, task, constants and order."""
    lines: dict[Cell, list[str]] = {}
    for cell in cells:
        lines.setdefault(replace(cell, fraction=0.0), []).append(f"{cell.fraction:g}")
    return "; ".join(
        f"--encoder {line.encoder} --task {line.task} --constants {line.constants} --order "
        f"{line.order} --fraction " + " or ".join(fractions)
        for line, fractions in lines.items()
    )


def _summary(stored: StoredStudy, cell: Cell) -> Any:
    """The study's summary of the original, where it has that, and of the cell."""
    original = replace(cell, fraction=1.0)
    summary = stored.summary(
        each for each in (original, cell) if each in stored.steps.cells and stored.has(each)
    )
    if summary.empty:
        raise SpecError(
            f"the baselines of {cell.encoder} on {cell.task} are not finished: run 'papa run' again"
        )
    return summary


def _constants(stored: StoredStudy, step: Probe | Own) -> Constants:
    from papa.attention.constants import ConstantMatrices

    assert step.constants is not None, "of a step that can be exported"
    found = step.constants.reference(stored.store)
    if isinstance(step.constants, Outputs):
        return step.constants.read(found)
    return ConstantMatrices.load(found.folder, encoder=step.encoder, slots=step.task.slots)


def _print(document: Any, folder: Path, console: Console) -> None:
    from papa.exporting.card import cell_label, report_rows
    from papa.exporting.gains import choices

    label = cell_label(document.study)
    print_table(console, (), report_rows(document), title=label, show_header=False)
    for choice in choices(document):
        title = f"Int8 beside constant heads, in {choice.runtime}"
        print_table(console, choice.headings, choice.rows, title=title)
    say(console, f"Written to {folder}; load it with papa.load_exported({str(folder)!r}).")
