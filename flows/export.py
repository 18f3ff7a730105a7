"""What ``papa export`` does: ``papa.export`` with a finished cell of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.drops import Answer, answers
from flows.terminal import say
from papa.errors import SpecError, joined, nearest_first
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.spec.task import UNLABELLED_METRICS
from papa.study.constants import Outputs, ReusedBefore
from papa.study.own import Own
from papa.study.probe import Probe, read_scores
from papa.study.store import Store
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def export_cell(
    study: StudySpec,
    store: Store,
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
    import papa
    from papa.attention.constants import ConstantMatrices
    from papa.encoders.reference import load_tokenizer

    stored = StoredStudy(study, store)
    line = _line(stored, wanted)
    if max_drop is not None:
        fraction = _within(stored, line[0], max_drop)
    cell = next((cell for cell in line if math.isclose(cell.fraction, fraction or 0)), None)
    if cell is None or not stored.has(cell):
        done = joined(f"{cell.fraction:g}" for cell in line if stored.has(cell)) or "none"
        raise SpecError(f"fraction {fraction:g} is not finished here: give one that is ({done})")
    step = _one_encoder(stored, cell)
    assert step.constants is not None
    layout, made = stored.inputs.study.layout, step.constants.reference(store)
    pairs, own = step.task.kind == "pair", isinstance(step, Own)
    if pairs and layout.segment_ids == "stay":
        raise SpecError("segment_ids: stay has no export: run the study with follow")
    if isinstance(step.constants, Outputs):
        constants: Any = step.constants.read(made)
    else:
        constants = ConstantMatrices.load(made.folder, encoder=step.encoder, slots=step.task.slots)
    tokenizer = load_tokenizer(step.encoder)
    if step.task.kind == "text" and layout.one_text_truncation == "half":
        tokenizer.model_max_length = step.task.slots // 2 + 1
    with console.status("writing, and measuring speed …"):
        papa.export(
            _model(step),
            tokenizer,
            read_scores(stored.found[step]).constant_heads,
            constants,
            folder,
            pairs=pairs,
            positions="tokens" if own else "slots",
            study={"name": study.name, "cell": asdict(cell), "found": _findings(stored, cell)},
        )
    say(console, (folder / "README.md").read_text().partition("---\n\n")[2].strip())
    say(console, f"Written to {folder}.")


def _line(stored: StoredStudy, wanted: Mapping[str, str]) -> list[Cell]:
    """The cells with these names, in full or as in tables; they differ in their fraction alone."""
    full = {stored.inputs.labels[one]: one.name for one in stored.inputs.encoders}
    cells = list(stored.steps.cells)
    for what, name in wanted.items():
        names = {getattr(cell, what) for cell in cells}
        cells = [c for c in cells if name in (found := getattr(c, what), full.get(found))]
        if not cells:
            raise SpecError(
                f"--{what} {name}: study '{stored.inputs.study.name}' has "
                f"{nearest_first(name, names)}: give one of them"
            )
    for what in ("encoder", "task"):
        if len(names := {getattr(cell, what) for cell in cells}) > 1:
            raise SpecError(f"the study has more than one {what}: give --{what}: {joined(names)}")
    if not any(map(stored.has, cells)):
        raise SpecError(stored.nothing_found())
    return cells


def _within(stored: StoredStudy, asked: Cell, max_drop: float) -> float:
    """The smallest fraction whose drop is surely within a share."""
    names = ("encoder", "task", "constants", "order")
    same: Iterable[Answer] = (
        answer
        for answer in answers(stored, max_drop)
        if all(getattr(answer, name) == getattr(asked, name) for name in names)
    )
    answer = next(iter(same))
    if answer.most:
        return answer.most.fraction
    drop = f"no fraction of the study is surely within a drop of {100 * max_drop:g} %"
    if answer.reason or not answer.counts:
        raise SpecError(f"{drop}: {answer.reason or 'none below 1 is finished'}")
    fewer = 1 - answer.counts[0].constant_heads // 2 / answer.heads_in_all
    raise SpecError(
        f"{drop}: add {fewer:.3g} to its fractions, more seeds or more validation rows, and run it"
    )


def _one_encoder(stored: StoredStudy, cell: Cell) -> Probe | Own:
    """The step of a cell whose heads and constants are those of one encoder."""
    step, *others = stored.steps.cells[cell]
    fault = ""
    if step.constants is None:
        fault = "no head is constant in this cell: give a fraction below 1"
    elif isinstance(step.constants, ReusedBefore):
        fault = f"'{cell.constants}' heads mix by the attention of the layer before, no constant"
    elif step.trained:
        fault = "trained constants differ from seed to seed and are not kept"
    elif others and isinstance(step.constants, Outputs) and step.constants.seed is not None:
        fault = f"'{cell.constants}' draws other inputs for each of the study's seeds"
    elif others:
        fault = f"order '{cell.order}' makes other heads constant for each of the study's seeds"
    elif step.encoder.causal:
        fault = f"'{step.encoder.name}' is a decoder: hold its heads constant with papa.ablated"
    if fault:
        raise SpecError(fault)
    return step


def _model(step: Probe | Own) -> PreTrainedModel:
    """The original with the fastest attention that transformers has, its own head where that was
    asked.
    """
    from typing import cast

    from papa.encoders.weights import load_model
    from papa.probes.own_model import own_class

    head = own_class(step.task, step.encoder) if isinstance(step, Own) else "AutoModel"
    what = f"encoder '{step.encoder.name}'"
    model = load_model(Path(step.encoder.folder), what, attention="sdpa", head=head)
    return cast("PreTrainedModel", model.float().eval())


def _findings(stored: StoredStudy, cell: Cell) -> dict[str, str]:
    """What the study found of the cell, and of the model's own use with the same heads."""

    def heads(one: Cell) -> set[tuple[tuple[int, int], ...]]:
        steps = stored.steps.cells[one]
        return {read_scores(stored.found[step]).constant_heads for step in steps}

    alike = [one for one in stored.cells if replace(one, task=cell.task) == cell]
    same = [one for one in alike if heads(one) == heads(cell)]
    originals = [replace(one, fraction=1.0) for one in same]
    rows = stored.summary([*same, *(one for one in stored.cells if one in originals)])
    found: dict[str, str] = {}
    for row in rows[rows["fraction"] == cell.fraction].to_dict("records"):
        own = row["metric"] in UNLABELLED_METRICS
        if row["task"] != cell.task and not own:
            continue
        told = [_interval(row["mean"], row["low"], row["high"])]
        if not own:
            drop = _interval(row["relative_drop"], row["drop_low"], row["drop_high"])
            told += [
                f"the original {row['original']:.3f}, a relative drop of {drop}",
                f"always one answer {row['always_one_answer']:.3f}",
                f"word embeddings {row['word_embeddings']:.3f}",
            ]
        sure = "lies above 0" if row["drop_low"] > 0 else "reaches 0 or is not known"
        told.append(row["reason"] and f"inconclusive, as the original {row['reason']}")
        told.append("" if own or row["reason"] else f"the drop's interval {sure}")
        kind = "own use kept" if own else "score"
        found[f"{row['task']}: {kind} ({row['metric']}, {row['seeds']} seeds)"] = "; ".join(
            filter(None, told)
        )
    return found


def _interval(mean: float, low: float, high: float) -> str:
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"
