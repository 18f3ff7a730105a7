"""What ``papa export`` does: find a finished point of a study, write it as a folder, say what it cost and gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.build import build_graph
from flows.graph import Cell, Graph, Node
from flows.inputs import check_inputs
from papa.errors import SpecError
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference
from tasks.mlflow_client import tracking_address
from tasks.probe import Probe, read_scores
from tasks.store import Store


@dataclass(frozen=True)
class Wanted:
    """The point asked for; None takes the study's only one.

    Attributes:
        encoder: a name as in the study's tables, or in full.
        task, constants, order, fraction: as in the study.
    """

    encoder: str | None
    task: str | None
    constants: str
    order: str
    fraction: float


def export_point(study: StudySpec, store: Store, wanted: Wanted, folder: Path, console: Console) -> None:
    """Write the point ``wanted`` of a finished study to ``folder`` and print the report.

    Raises:
        SpecError: the study has no such point, it was not run, or it cannot be exported.
        ArtifactError: the folder is taken, or an artifact is damaged.
    """
    from papa.exporting.writing import check_free

    check_free(folder)
    inputs = check_inputs(study)
    study = inputs.study
    graph = build_graph(study, inputs, tracking_address(store))
    finished = _finished(graph, store)
    full_names = {inputs.label(encoder): encoder.name for encoder in inputs.encoders}
    cell = _find(graph.cells, finished, wanted, full_names, study.name)
    original = _original(graph.cells, finished, cell)
    if len(cell.nodes) > 1:
        raise SpecError(
            f"order '{cell.order}' makes other heads constant for each of the study's {len(cell.nodes)} seeds, so this "
            "point is no one encoder: export another order, or run the study with one seed"
        )
    step = finished[cell.nodes[0]]
    if step.trained:
        raise SpecError(
            "trained constants differ from seed to seed and are not kept: export --constants average or a control"
        )
    _silence_transformers()
    with console.status("writing …") as status:
        document = _export(study, cell, step, original, store, folder, status)
    _print(document, folder, console)


def _finished(graph: Graph, store: Store) -> dict[Node, Probe]:
    """The probings of a study that the store holds."""
    found: dict[Node, ArtifactReference] = {}
    probes = {}
    for node in graph.nodes:
        if not all(need in found for need in node.needs):
            continue
        step = node.step([found[need] for need in node.needs])
        if store.holds(step.stage, step.key):
            found[node] = store.reference(step.stage, step.key)
            if isinstance(step, Probe):
                probes[node] = step
    return probes


def _find(
    cells: Sequence[Cell], finished: dict[Node, Probe], wanted: Wanted, full_names: dict[str, str], study: str
) -> Cell:
    done = [cell for cell in cells if all(node in finished for node in cell.nodes)]
    if not done:
        raise SpecError(
            f"study '{study}' has not been run in this store: run 'papa run' on it first, or give its --store"
        )
    matching = [
        cell
        for cell in cells
        if wanted.encoder in (None, cell.model, full_names[cell.model])
        and wanted.task in (None, cell.task.name)
        and (cell.constants, cell.order) == (wanted.constants, wanted.order)
        and abs(cell.fraction - wanted.fraction) < 1e-9
    ]
    if len(matching) > 1:
        raise SpecError(
            f"study '{study}' has {len(matching)} such points: give --encoder and --task: {_points(matching)}"
        )
    if not matching:
        raise SpecError(f"study '{study}' has no such point: it has {_points(done)}")
    if matching[0] not in done:
        raise SpecError(f"this point of '{study}' has not been run: run 'papa run' again, or give {_points(done)}")
    return matching[0]


def _points(cells: Sequence[Cell]) -> str:
    """The points of some cells: one line of options an encoder, task, constants and order."""
    lines: dict[tuple[str, ...], list[float]] = {}
    for cell in cells:
        lines.setdefault((cell.model, cell.task.name, cell.constants, cell.order), []).append(cell.fraction)
    return "; ".join(
        f"--encoder {model} --task {task} --constants {constants} --order {order} --fraction "
        + " or ".join(f"{fraction:g}" for fraction in fractions)
        for (model, task, constants, order), fractions in lines.items()
    )


def _original(cells: Sequence[Cell], finished: dict[Node, Probe], cell: Cell) -> Probe | None:
    """The probing of the same encoder on the same task with no head constant."""
    for other in cells:
        same = (other.model, other.task.name, other.fraction) == (cell.model, cell.task.name, 1.0)
        if same and other.nodes[0] in finished:
            return finished[other.nodes[0]]
    return None


def _export(
    study: StudySpec, cell: Cell, step: Probe, original: Probe | None, store: Store, folder: Path, status: Any
) -> Any:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora import load_corpus
    from papa.corpora.tokens import special_tokens_of
    from papa.encoders.reference import load_tokenizer
    from papa.exporting import InputLayout, export_encoder
    from papa.exporting.card import score_kept

    scores = read_scores(step.folder(store))
    before = () if original is None else read_scores(original.folder(store)).scores
    if step.constants is None or not step.heads:
        raise SpecError("no head is constant at this point, so there is nothing to export: give a fraction below 1")
    task = step.task
    return export_encoder(
        step.encoder,
        ConstantMatrices.load(step.constants.folder, encoder=step.encoder, slots=task.slots),
        step.heads,
        InputLayout.of(task.kind, task.slots, study.layout, special_tokens_of(load_tokenizer(step.encoder))),
        folder,
        examples=load_corpus(step.corpus.folder).split("validation"),
        study={
            "name": study.name,
            "encoder": cell.model,
            "task": task.name,
            "constants": cell.constants,
            "order": cell.order,
            "fraction": cell.fraction,
        },
        score=score_kept(
            task.metric,
            [one.score for one in before],
            [one.score for one in scores.scores],
            scores.unseen_share,
        ),
        device=_device(study.execution.device),
        progress=lambda done, total: status.update(f"measuring speed, {done} of {total} …"),
    )


def _device(asked: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def _silence_transformers() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _print(document: Any, folder: Path, console: Console) -> None:
    from papa.exporting.card import point_label, report_rows

    encoder = document.encoder
    table = Table(title=point_label(document.study), show_header=False)
    for row in report_rows(
        document.score, document.speed, document.size, len(document.heads), encoder["layers"] * encoder["heads"]
    ):
        table.add_row(*row)
    console.print(table)
    console.print(
        f"Written to {folder}; load it with papa.load_exported({str(folder)!r}).", highlight=False, soft_wrap=True
    )
