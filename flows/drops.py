"""How many heads may become constant within a drop of the score.

A number of constant heads is within the drop where the upper end of its drop's 95 % interval over seeds and examples
is (paper, Sections 3.4 and 4.2), and so is that of every smaller number: tested from few heads to many up to the first
failure, the chance that any "within" is wrong stays that of a single test, 2.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flows.stored import StoredStudy
from papa.errors import SpecError
from papa.scores.intervals import Interval, Measured, paired_drop
from papa.spec.cells import Cell, constant_count
from papa.spec.orders import Head, needs_lambda
from papa.storage.artifacts import ArtifactReference
from papa.study.baseline import Baseline, read_baseline
from papa.study.probe import read_examples, read_scores
from papa.study.rank import Rank, read_lambda
from papa.study.results import measured_of

Verdict = Literal["within", "undecided", "beyond"]
NO_BASELINES = "its baselines are not finished"


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
        return next((count for count in reversed(self.counts) if count.verdict == "within"), None)

    @property
    def undecided(self) -> list[Count]:
        """Larger numbers of which the study cannot tell; none where it can tell of no number."""
        if self.reason:
            return []
        most = self.most.constant_heads if self.most else 0
        return [count for count in self.counts if count.verdict == "undecided" and count.constant_heads > most]


def parse_share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``.

    Raises:
        SpecError: it is no share between 0 and 100 %.
    """
    try:
        share = float(text.strip().removesuffix("%")) / (100 if "%" in text else 1)
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
    lines: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in stored.steps.cells:
        lines.setdefault((cell.encoder, cell.task, cell.constants, cell.order), []).append(cell)
    return [_answer(stored, cells, max_drop) for cells in lines.values()]


def _answer(stored: StoredStudy, cells: Sequence[Cell], max_drop: float) -> Answer:
    """What cells say that differ in their fraction alone."""
    first, finished = cells[0], [cell for cell in cells if stored.has(cell)]
    probe = stored.steps.cells[first][0]
    heads_in_all = probe.encoder.layers * probe.encoder.heads
    original = next((_measured(stored, cell) for cell in finished if cell.fraction == 1), None)
    if original is not None:
        reason = _reason(stored, first, original)
    elif any(cell.fraction == 1 for cell in cells):
        reason = "the cell with every head input-dependent is not finished"
    else:
        reason = "it has no fraction 1"
    by_count = {constant_count(cell.fraction, heads_in_all): cell for cell in finished}
    counts, all_within = [], True
    for constant_heads, cell in sorted(by_count.items()):
        if constant_heads and original is not None:
            drop = paired_drop(original, _measured(stored, cell))
            verdict = "undecided" if reason else verdict_on(drop, max_drop, all_within=all_within)
            all_within = verdict == "within"
            counts.append(Count(constant_heads, cell.fraction, drop, verdict, _heads(stored, cell)))
    return Answer(
        first.encoder,
        first.task,
        first.constants,
        first.order,
        heads_in_all,
        tuple(counts),
        _certainty(stored, first) if needs_lambda(first.order) else "",
        len(cells) - len(finished),
        reason,
    )


def verdict_on(drop: Interval, max_drop: float, *, all_within: bool) -> Verdict:
    """What an interval says of one number of heads.

    Args:
        drop: its drop.
        max_drop: the acceptable one.
        all_within: whether every smaller number is within.
    """
    if drop.high <= max_drop and all_within:
        return "within"
    return "beyond" if drop.low > max_drop else "undecided"


def _measured(stored: StoredStudy, cell: Cell) -> Measured:
    steps = stored.steps.cells[cell]
    folders = [stored.found[step].folder for step in steps]
    scores = [(read_scores(folder).scores, read_examples(folder)) for folder in folders]
    return measured_of(steps[0].task.metric, scores, folders[0])


def _heads(stored: StoredStudy, cell: Cell) -> tuple[Head, ...] | None:
    step, *others = stored.steps.cells[cell]
    return None if others else read_scores(stored.found[step].folder).constant_heads


def _beside(stored: StoredStudy, cell: Cell) -> dict[Rank | Baseline, ArtifactReference]:
    """The finished rankings and baselines of a cell's encoder on its task."""
    probe = stored.steps.cells[cell][0]
    return {
        step: found
        for step, found in stored.found.items()
        if isinstance(step, Rank | Baseline) and (step.encoder, step.task) == (probe.encoder, probe.task)
    }


def _certainty(stored: StoredStudy, cell: Cell) -> str:
    """What is known of the head order by λ; "" before it is made."""
    from papa.reporting.certainty import certainty

    by_seed = {step.seed: found for step, found in _beside(stored, cell).items() if isinstance(step, Rank)}
    return certainty(read_lambda(by_seed), stored.inputs.study.fractions) if by_seed else ""


def _reason(stored: StoredStudy, cell: Cell, original: Measured) -> str:
    """Why nothing can be told of any drop; "" where something can."""
    from papa.reporting.verdicts import not_beaten, reason_sentence
    from papa.scores.examples import influence

    if len(original.scores) == 1:
        return "one seed has no interval: give the study more seeds"
    found = [one for step, one in _beside(stored, cell).items() if isinstance(step, Baseline)]
    if not found:
        return NO_BASELINES
    if math.isnan(paired_drop(original, original).mean):
        return "the original's score comes near 0, and a share of it says nothing"
    baseline, metric = read_baseline(found[0].folder), stored.steps.cells[cell][0].task.metric
    answer = baseline.always_one_answer
    one_answer = Measured.same(original.scores, answer.score, influence(metric, answer.examples))
    words = measured_of(metric, [(baseline.word_embeddings, baseline.word_examples)], found[0].folder)
    why = not_beaten(original, one_answer, words)
    return reason_sentence({"reason": why}) if why else ""
