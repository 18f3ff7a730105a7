"""The measurement of a model: scores, head scores, sentences, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas

from papa.errors import SpecError, joined
from papa.files import write_atomically
from papa.library.redundancy import JointEffects
from papa.reporting.tables import by_task, score_tables
from papa.reporting.wording import WrittenTable
from papa.scores.drops import MaxDrop
from papa.scores.summary import INFLUENCE, summarise
from papa.scores.verdicts import drops_of_all_lines, heads_within
from papa.spec.columns import PAIR
from papa.spec.orders import Cell, Head

if TYPE_CHECKING:
    from papa.reporting.figures import Figure


@dataclass(frozen=True)
class Tables:
    """Tables that print as Markdown, also in notebooks.

    Attributes:
        tables: The tables, each with a heading.
    """

    tables: tuple[WrittenTable, ...]

    def save(self, path: str | Path) -> None:
        """Write the tables to a file.

        Args:
            path: A file whose name ends in ``.md``, in ``.tex`` (for LaTeX's package
                ``booktabs``), or for a single table in ``.csv``.

        Raises:
            SpecError: The name has another ending, or is ``.csv`` for more than one table.
        """
        path = Path(path)
        texts = {".md": f"{self}\n", ".tex": "\n".join(table.latex for table in self.tables)}
        if len(self.tables) == 1:
            texts[".csv"] = self.tables[0].csv
        if path.suffix not in texts:
            raise SpecError(
                f"{len(self.tables)} tables cannot be saved as {path}: give a file that ends in "
                f"{joined(texts)}, or save the data frame .summary"
            )
        write_atomically(path, texts[path.suffix])

    def __str__(self) -> str:
        return "\n".join(table.titled_markdown for table in self.tables)

    __repr__ = __str__
    _repr_markdown_ = __str__


@dataclass(frozen=True)
class Measurement:
    """The scores of a model with more and more of its heads constant.

    Printed, it shows its ``answers`` and its ``table``.

    Attributes:
        results_with_influence: ``results``, and what each example adds to a score, from which
            intervals follow.
        head_scores: A row for every head: layer, head, method, score and its 95 % interval (low,
            high), one method after the other, with the ``attrs`` of ``papa.head_scores``; empty if
            no order follows scores.
        answers: Sentences: what was measured, and what it says.
        constant_heads: The constant heads of each cell, as (layer, head) from 0; None if each seed
            has others.
        joint_effects: What the first heads of the order "effect", and pairs of its first 16, cost
            together, beside the sum of what each costs, on validation texts; None without that
            order, of probes, and with ``joint_effects=False``.
    """

    results_with_influence: pandas.DataFrame
    head_scores: pandas.DataFrame
    answers: list[str]
    constant_heads: Mapping[Cell, tuple[Head, ...] | None]
    joint_effects: JointEffects | None = None

    @property
    def results(self) -> pandas.DataFrame:
        """A row for every cell and seed, as in ``results.parquet`` (docs/results.md)."""
        return self.results_with_influence.drop(columns=INFLUENCE)

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for every cell: score and drop with intervals, and baselines (docs/results.md)."""
        return summarise(self.results_with_influence)

    @property
    def table(self) -> Tables:
        """Scores, drops and baselines."""
        return Tables(tuple(score_tables(self.summary)))

    @property
    def by_task(self) -> Tables:
        """Scores in the shape of the paper's tables: a column for every task."""
        return Tables((by_task(self.summary),))

    def heads(self, max_drop: float | str | None = None) -> pandas.DataFrame:
        """Return how many and which heads may become constant within a drop of the score, as
        ``papa heads`` prints it.

        All lines are answered at once: in 95 % of measurements no line allows heads that cost more.

        Args:
            max_drop: The largest drop: a share of the score, such as 0.01 or "1%", or for a loss a
                difference in nats, such as "0.05nats". None takes 1 %, and for a loss 0.01 nats,
                which are 1 % of perplexity.

        Returns:
            A row for every number of constant heads: the heads, the reason where there is no
            verdict, the drop with a 95 % interval, the number, and last the verdict ("within",
            "undecided" or "beyond").

        Raises:
            SpecError: ``max_drop`` is not a drop, or its unit does not apply to the metric.
        """
        limit = MaxDrop.parse(max_drop, "max_drop")
        heads = heads_within(
            drops_of_all_lines(self.results_with_influence), self.constant_heads, limit
        )
        return heads.drop(columns=PAIR)

    def plot(self) -> Figure:
        """Return the figure of scores by the share of heads that stay input-dependent (paper,
        Figure 2); ``.save("scores.png")`` writes it.
        """
        from papa.reporting.score_figures import scores_figure

        return scores_figure(self.summary)

    def __str__(self) -> str:
        return "\n".join([*self.answers, "", str(self.table)])

    __repr__ = __str__
    _repr_markdown_ = __str__


def head_score_attrs(
    substitute: str, ranking_seeds: Sequence[int], training_texts: int
) -> dict[str, object]:
    """Return the ``attrs`` of a frame of head scores: what they were computed from."""
    return {"substitute": substitute, "ranking_seeds": list(ranking_seeds), "texts": training_texts}
