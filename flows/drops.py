"""How many heads may become constant within a drop of the score (``papa.reporting.drops``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from papa.errors import SpecError
from papa.scores.intervals import Interval
from papa.spec.cells import Cell
from papa.spec.orders import Head, needs_lambda
from papa.study.probe import read_scores
from papa.study.rank import read_lambda
from papa.study.results import StudyPart
from papa.study.stored import StoredStudy

if TYPE_CHECKING:
    from papa.reporting.drops import Verdict

NO_BASELINES = "its baselines are not finished"


@dataclass(frozen=True)
class Count:
    """A number of constant heads and what it costs: the relative drop of the score, whose ends are
    nan for one seed. It is undecided, too, where a smaller number is. Heads are (layer, head) from
    0; None where each seed has others.
    """

    constant_heads: int
    fraction: float
    drop: Interval
    verdict: Verdict
    heads: tuple[Head, ...] | None


@dataclass(frozen=True)
class Answer:
    """What a study says of one encoder on one task, with one kind of constants and one head order:
    every number of constant heads that is finished, ascending; what is known of a head order by λ;
    how many cells are missing; why nothing can be told, or ""; and how many query heads share a
    head of keys and values in a decoder.
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
    sharing: int | None

    @property
    def most(self) -> Count | None:
        """The largest number of heads that is surely within the drop."""
        return next((count for count in reversed(self.counts) if count.verdict == "within"), None)

    @property
    def key_heads(self) -> tuple[int, int] | None:
        """Of how many heads of keys every query head is constant in ``most``, and of how many in
        all; None of an encoder, or where each seed has others.
        """
        if not self.sharing or not self.most or self.most.heads is None:
            return None
        from papa.reporting.cache import whole_groups

        return whole_groups(self.most.heads, self.sharing), self.heads_in_all // self.sharing

    @property
    def undecided(self) -> list[Count]:
        """Larger numbers of which the study cannot tell; none where it can tell of no number."""
        if self.reason:
            return []
        most = self.most.constant_heads if self.most else 0
        larger = [count for count in self.counts if count.constant_heads > most]
        return [count for count in larger if count.verdict == "undecided"]


def parse_share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if "%" in text else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise SpecError(
            f"--max-drop {text}: give a percentage such as 1%, or a share below 1 such as 0.01"
        )
    return share


def answers(stored: StoredStudy, max_drop: float) -> list[Answer]:
    """What the finished cells of a study say of a relative drop that is acceptable, as a share: an
    answer for every encoder, task, kind of constants and head order."""
    from papa.reporting.summary import LINE

    rows = stored.summary(stored.cells).to_dict("records")
    summary = {Cell(*(row[column] for column in (*LINE, "fraction"))): row for row in rows}
    found = []
    for part in stored.steps.parts:
        lines: dict[Cell, list[Cell]] = {}
        for cell in part.cells:
            lines.setdefault(replace(cell, fraction=0.0), []).append(cell)
        found += [_answer(stored, part, cells, summary, max_drop) for cells in lines.values()]
    return found


def _answer(
    stored: StoredStudy,
    part: StudyPart,
    cells: Sequence[Cell],
    summary: Mapping[Cell, Mapping[str, Any]],
    max_drop: float,
) -> Answer:
    """What cells say that differ in their fraction alone."""
    from papa.reporting.drops import verdict_on

    first, encoder = cells[0], part.encoder
    rows = {cell: summary[cell] for cell in cells if cell in summary}
    reason = _reason(stored, cells, list(rows.values()))
    by_count = {row["constant_heads"]: cell for cell, row in rows.items()}
    counts, all_within = [], True
    for constant_heads, cell in sorted(by_count.items()):
        row = rows[cell]
        if not constant_heads or math.isnan(row["original"]):
            continue
        drop = Interval(row["relative_drop"], row["drop_low"], row["drop_high"], row["seeds"])
        verdict = "undecided" if reason else verdict_on(drop, max_drop, all_within=all_within)
        all_within = verdict == "within"
        steps = stored.steps.cells[cell]
        heads = {read_scores(stored.found[step]).constant_heads for step in steps}
        same = heads.pop() if len(heads) == 1 else None
        counts.append(Count(constant_heads, cell.fraction, drop, verdict, same))
    return Answer(
        *(first.encoder, first.task, first.constants, first.order),
        heads_in_all=encoder.layers * encoder.heads,
        counts=tuple(counts),
        certainty=_certainty(stored, part) if needs_lambda(first.order) else "",
        missing=sum(not stored.has(cell) for cell in cells),
        reason=reason,
        sharing=encoder.heads // encoder.key_heads if encoder.key_heads else None,
    )


def _certainty(stored: StoredStudy, part: StudyPart) -> str:
    """What is known of the head order by λ; "" before it is made."""
    from papa.reporting.certainty import certainty, trained_on

    rankings, found = part.rankings.get("lambda", {}), stored.found
    by_seed = {seed: found[step] for seed, step in rankings.items() if step in found}
    if not by_seed:
        return ""
    controls = {seed: found[step] for seed, step in part.controls.items() if step in found}
    told = certainty(read_lambda(by_seed, controls=controls), stored.inputs.study.fractions)
    return f"{told}{trained_on(part.task)}"


def _reason(stored: StoredStudy, cells: Sequence[Cell], rows: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing can be told of any drop; "" where something can."""
    from papa.reporting.drops import doubt

    original = next((cell for cell in cells if cell.fraction == 1), None)
    if original is None:
        return "it has no fraction 1"
    if not stored.has(original):
        return "the cell with every head input-dependent is not finished"
    if not rows:
        return NO_BASELINES
    return next(filter(None, map(doubt, rows)), "")
