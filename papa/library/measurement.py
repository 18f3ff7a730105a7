"""What a measurement of a model found: scores, head scores, sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas

from papa.reporting.answers import against_random
from papa.reporting.tables import by_task, score_tables
from papa.reporting.wording import WrittenTable
from papa.scores.drops import MaxDrop
from papa.scores.order_comparison import compare_orders
from papa.scores.summary import INFLUENCE, drops_of_all_lines, heads_at, summarise
from papa.spec.orders import Cell, Head

if TYPE_CHECKING:
    from papa.reporting.figures import Figure


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder with more and more of its heads constant.

    Attributes:
        results: a row for every cell and seed, as in ``results.parquet`` (docs/results.md).
        head_scores: those that orders followed, a method after the other.
        answers: what was found, in sentences.
        constant_heads: of each cell; None where each seed has others.
    """

    results: pandas.DataFrame
    head_scores: pandas.DataFrame
    answers: list[str]
    constant_heads: Mapping[Cell, tuple[Head, ...] | None]

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for every cell: score and drop with intervals, and baselines (docs/results.md)."""
        return summarise(self.results)

    @property
    def table(self) -> str:
        """Scores, drops and baselines as Markdown."""
        tables = score_tables(self.summary)
        return "\n".join(f"{table.heading}\n\n{table.markdown}" for table in tables)

    @property
    def by_task(self) -> WrittenTable:
        """In the paper's shape, a column a task; ``.save("table.tex")`` or ``.csv`` writes it."""
        return by_task(self.summary)

    def heads(self, max_drop: float | str | None = None) -> pandas.DataFrame:
        """What ``papa heads`` answers: a row for every number of constant heads, with its drop, the
        verdict ("within", "undecided" or "beyond"), the reason for none, and the heads.

        All lines are answered at once: in 95 % of measurements no line allows heads that cost more.

        Args:
            max_drop: a share of the score, as 0.01 or "1%"; of a loss nats, as "0.05nats". None
                takes 1 %, and of a loss 0.01 nats, which are 1 % of perplexity.

        Raises:
            SpecError: it has a unit in which the metric has no drop.
        """
        limit = MaxDrop.parse(max_drop, "max_drop")
        heads = heads_at(drops_of_all_lines(self.results), self.constant_heads, limit)
        return heads.drop(columns=["encoder", "task"])

    def plot(self) -> Figure:
        """Score against the share of heads that stay input-dependent (paper, Figure 2)."""
        from papa.reporting.figures import scores_figure

        return scores_figure(self.summary)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every cell and seed."""
        return self.results.drop(columns=INFLUENCE)

    def __str__(self) -> str:
        return "\n".join([*self.answers, "", self.table])

    _repr_markdown_ = __str__


def compared_with_random(results: pandas.DataFrame) -> list[str]:
    """A sentence for each order beside random ones; nothing where there are none."""
    compared = compare_orders(results, {})
    return against_random(compared[0]) if compared else []
