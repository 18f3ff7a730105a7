"""What ``papa heads`` does: how many and which heads may become constant within a drop of the score.

A number of constant heads is within the drop where the upper end of its drop's 95 % interval over seeds and examples
is (paper, Sections 3.4 and 4.2), and so is that of every smaller number: tested from few heads to many up to the first
failure, the chance that any "within" is wrong stays that of a single test, 2.5 %.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import typer
from rich.console import Console

from flows.stored import StoredStudy
from papa.errors import SpecError
from papa.scores.intervals import Interval, Measured, paired_drop
from papa.spec import StudySpec
from papa.spec.cells import Cell, constant_count
from papa.spec.orders import Head, needs_lambda
from papa.storage.artifacts import ArtifactReference
from papa.study.baseline import Baseline, read_baseline
from papa.study.probe import read_examples, read_scores
from papa.study.rank import Rank, read_lambda
from papa.study.results import measured_of
from papa.study.store import Store

Verdict = Literal["within", "undecided", "beyond"]


@dataclass(frozen=True)
class Count:
    """A number of constant heads and what it costs.

    Attributes:
        constant_heads: how many.
        fraction: the share of heads that stay input-dependent, as the study has it.
        drop: relative drop of the score with its interval; nan ends for one seed.
        verdict: whether it is within the drop asked for; undecided where a smaller number is not.
        heads: which, as (layer, head) from 0; None where each seed has others.
    """

    constant_heads: int
    fraction: float
    drop: Interval
    verdict: Verdict
    heads: tuple[Head, ...] | None


@dataclass(frozen=True)
class Answer:
    """What a study says of one encoder on one task, with one kind of constants and one head order.

    Attributes:
        encoder, task, constants, order: which, as in tables.
        heads_in_all: L·H.
        counts: every number of constant heads that is finished, ascending.
        certainty: what is known of a head order by λ; "" for others.
        missing: how many cells are not finished.
        reason: why nothing can be told; "" where something can.
    """

    encoder: str
    task: str
    constants: str
    order: str
    heads_in_all: int
    counts: tuple[Count, ...]
    certainty: str
    missing: int
    reason: str

    @property
    def most(self) -> Count | None:
        """The largest number of heads that is surely within the drop."""
        return next((one for one in reversed(self.counts) if one.verdict == "within"), None)

    @property
    def undecided(self) -> list[Count]:
        """Larger numbers of which the study cannot tell; none where it can tell of no number."""
        most = self.most.constant_heads if self.most else 0
        return [
            one for one in self.counts if one.verdict == "undecided" and one.constant_heads > most and not self.reason
        ]


def parse_share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``.

    Raises:
        SpecError: it is no share between 0 and 100 %.
    """
    number = text.strip().removesuffix("%").strip()
    try:
        share = float(number) / (100 if "%" in text else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise SpecError(f"--max-drop {text}: give a percentage such as 1%, or a share below 1 such as 0.01")
    return share


def answers(stored: StoredStudy, max_drop: float) -> list[Answer]:
    """What the finished cells of a study say, for every encoder, task, kind of constants and head order.

    Args:
        stored: the study, and what of it is finished.
        max_drop: the relative drop that is acceptable, as a share.
    """
    inputs = stored.inputs
    baselines = {
        (inputs.encoder_label(step.encoder), step.task.name): step
        for step in stored.found
        if isinstance(step, Baseline)
    }
    heads_in_all = {inputs.encoder_label(one): one.layers * one.heads for one in inputs.encoders}
    certainties = _certainties(stored)
    lines: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in stored.steps.cells:
        lines.setdefault((cell.encoder, cell.task, cell.constants, cell.order), []).append(cell)
    return [
        _answer(
            stored,
            cells,
            baselines.get((line[0], line[1])),
            heads_in_all[line[0]],
            max_drop,
            certainties.get((line[0], line[1]), "") if needs_lambda(line[3]) else "",
        )
        for line, cells in lines.items()
    ]


def _certainties(stored: StoredStudy) -> dict[tuple[str, str], str]:
    """What is known of each head order by λ, by encoder and task."""
    from papa.reporting.certainty import certainty

    rankings: dict[tuple[str, str], dict[int, ArtifactReference]] = {}
    for step, found in stored.found.items():
        if isinstance(step, Rank):
            place = stored.inputs.encoder_label(step.encoder), step.task.name
            rankings.setdefault(place, {})[step.seed] = found
    fractions = stored.inputs.study.fractions
    return {place: certainty(read_lambda(by_seed), fractions) for place, by_seed in rankings.items()}


def _answer(
    stored: StoredStudy,
    cells: Sequence[Cell],
    baseline: Baseline | None,
    heads_in_all: int,
    max_drop: float,
    certainty: str,
) -> Answer:
    first, finished = cells[0], [cell for cell in cells if stored.has(cell)]
    original = next((_measured(stored, cell) for cell in finished if cell.fraction == 1), None)
    if original is None:
        planned = any(cell.fraction == 1 for cell in cells)
        every = "the cell with every head input-dependent is not finished"
        reason = every if planned else "it has no fraction 1"
    else:
        reason = _reason(original, stored, baseline)
    by_count = {constant_count(cell.fraction, heads_in_all): cell for cell in finished}
    counts, all_within = [], True
    for count, cell in sorted(by_count.items()):
        if count and original is not None:
            drop = paired_drop(original, _measured(stored, cell))
            verdict = "undecided" if reason else _verdict(drop, max_drop, all_within=all_within)
            all_within = verdict == "within"
            counts.append(Count(count, cell.fraction, drop, verdict, _heads(stored, cell)))
    return Answer(
        first.encoder,
        first.task,
        first.constants,
        first.order,
        heads_in_all,
        tuple(counts),
        certainty,
        len(cells) - len(finished),
        reason,
    )


def _measured(stored: StoredStudy, cell: Cell) -> Measured:
    steps = stored.steps.cells[cell]
    found = [stored.found[step].folder for step in steps]
    metric = steps[0].task.metric
    return measured_of(metric, [(read_scores(one).scores, read_examples(one)) for one in found], found[0])


def _heads(stored: StoredStudy, cell: Cell) -> tuple[Head, ...] | None:
    step, *others = stored.steps.cells[cell]
    return None if others else read_scores(stored.found[step].folder).constant_heads


def _reason(original: Measured, stored: StoredStudy, baseline: Baseline | None) -> str:
    """Why nothing can be told of any drop; "" where something can."""
    from papa.reporting.verdicts import not_beaten, reason_sentence
    from papa.scores.examples import influence

    if len(original.scores) == 1:
        return "one seed has no interval: give the study more seeds"
    if baseline is None:
        return "its baselines are not finished"
    if math.isnan(paired_drop(original, original).mean):
        return "the original's score comes near 0, and a share of it says nothing"
    folder = stored.found[baseline].folder
    found = read_baseline(folder)
    metric, answer = baseline.task.metric, found.always_one_answer
    one_answer = Measured.same(original.scores, answer.score, influence(metric, answer.examples))
    words = measured_of(metric, [(found.word_embeddings, found.word_examples)], folder)
    why = not_beaten(original, one_answer, words)
    return reason_sentence({"reason": why}) if why else ""


def _verdict(drop: Interval, max_drop: float, *, all_within: bool) -> Verdict:
    """Of one number of heads.

    Args:
        drop: its drop.
        max_drop: the acceptable one.
        all_within: whether every smaller number is within.
    """
    if drop.high <= max_drop and all_within:
        return "within"
    return "beyond" if drop.low > max_drop else "undecided"


def show_heads(study: StudySpec, store: Store, max_drop: float, *, as_json: bool) -> None:
    """Print what a study's finished cells say of a drop.

    Raises:
        SpecError: none of its cells is finished.
    """
    stored = StoredStudy(study, store)
    if not stored.cells:
        raise SpecError(
            f"study '{study.name}' has no finished cell in this store: run 'papa run' on it first, or give its --store"
        )
    found = answers(stored, max_drop)
    if as_json:
        document = {"study": study.name, "max_drop": max_drop, "answers": [_json(one) for one in found]}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console = Console()
    for one in found:
        console.print(_text(one, max_drop), highlight=False, markup=False)


def _json(answer: Answer) -> dict[str, Any]:
    most = answer.most
    return {
        **{name: getattr(answer, name) for name in ("encoder", "task", "constants", "order", "heads_in_all")},
        "constant_heads": most and most.constant_heads,
        "heads": most and most.heads,
        "reason": answer.reason,
        "certainty": answer.certainty,
        "missing_cells": answer.missing,
        "counts": [
            {
                **{name: value for name, value in asdict(one).items() if name != "drop"},
                "drop": _number(one.drop.mean),
                "drop_low": _number(one.drop.low),
                "drop_high": _number(one.drop.high),
            }
            for one in answer.counts
        ],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _text(answer: Answer, max_drop: float) -> str:
    from papa.reporting.wording import order_label

    most, title = answer.most, (answer.encoder, answer.task, answer.constants, order_label(answer.order))
    lines = [f"{' · '.join(title)}, within a drop of {100 * max_drop:g} % on these validation rows:"]
    if most is not None:
        lines.append(f"{_of(most, answer)} heads may become constant: {_drop(most)}")
        lines += _listed(most)
    elif answer.reason:
        lines.append(f"  the study cannot tell: {answer.reason}")
    elif not answer.counts:
        lines.append("  the study cannot tell: no cell with constant heads is finished")
    else:
        lines.append("  no number of heads in the study is known to stay within it")
    lines += [f"{_of(one, answer)}: cannot tell: {_drop(one)}{_advice(one, max_drop)}" for one in answer.undecided]
    lines += [f"{_of(one, answer)}: too many: {_drop(one)}" for one in answer.counts if one.verdict == "beyond"]
    if answer.certainty:
        lines.append(f"  {answer.certainty}")
    if answer.missing:
        lines.append(f"  {answer.missing} of its cells are not finished: 'papa run' on the study goes on")
    return "\n".join(lines)


def _advice(count: Count, max_drop: float) -> str:
    if count.drop.high <= max_drop:
        return ", but fewer are not known to be within"
    return "; more seeds or rows help"


def _of(count: Count, answer: Answer) -> str:
    return f"  {count.constant_heads} of {answer.heads_in_all}"


def _drop(count: Count) -> str:
    from papa.reporting.wording import percent_label, range_label

    return f"drop {percent_label(count.drop.mean)} ({range_label(count.drop.low, count.drop.high, percent=True)})"


def _listed(count: Count) -> list[str]:
    if count.heads is None:
        return ["  which ones differs from seed to seed in this head order"]
    layers: dict[int, list[str]] = {}
    for layer, head in count.heads:
        layers.setdefault(layer, []).append(str(head))
    return [
        "  which, layers and heads counted from 0:",
        *(f"    layer {layer}: {', '.join(heads)}" for layer, heads in layers.items()),
    ]
