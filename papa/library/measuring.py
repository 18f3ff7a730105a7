"""A small study in one call: the same cells, probes, metrics and intervals as ``papa run`` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas

from papa.attention.average import average_split
from papa.attention.constants import ConstantMatrices, control
from papa.library.bars import bar
from papa.library.encoder import TextEncoder
from papa.library.steps import trained_lambda
from papa.library.tasks import LabelledData, PreparedStudy, Task, prepared
from papa.probes.cell import CellScores, score_cell
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import WordEmbeddings
from papa.probes.training import SeedScore
from papa.ranking.seeds import TrainedLambda
from papa.reporting.answers import answers
from papa.reporting.certainty import certainty
from papa.reporting.columns import INFLUENCE_COLUMNS
from papa.reporting.results import result_rows
from papa.reporting.summary import summarise
from papa.reporting.tables import markdown_table, score_tables
from papa.scores.baselines import best_constant_answer
from papa.scores.intervals import Measured
from papa.spec import ConstantsKind, ConstantsSpec, Metric, Order, StudySpec
from papa.spec.cells import Cell, Result, constant_heads, partial_counts
from papa.spec.orders import Head, drawn_from, head_order, needs_lambda

if TYPE_CHECKING:
    from papa.reporting.figures.chart import Chart


@dataclass(frozen=True)
class Measurement:
    """The scores of an encoder with more and more of its heads constant.

    Attributes:
        results: a row for every cell and seed, as in ``results.parquet`` (docs/results.md).
        lambdas: λ of every head by seed, and what of it can be told from chance; None where no order needs it.
        constants: the constant matrices by kind.
    """

    results: pandas.DataFrame
    lambdas: TrainedLambda | None
    constants: Mapping[str, ConstantMatrices]

    @property
    def summary(self) -> pandas.DataFrame:
        """A row for every cell: score and relative drop with their intervals, and baselines (docs/results.md)."""
        return summarise(self.results)

    @property
    def table(self) -> str:
        """Scores, drops and baselines as Markdown."""
        written = score_tables(self.summary)
        parts = [markdown_table(one.headings, one.rows) for one in written]
        if len(written) > 1:
            parts = [f"{one.heading}\n\n{part}" for one, part in zip(written, parts, strict=True)]
        return "\n".join(parts)

    @property
    def answers(self) -> list[str]:
        """What was found, in sentences."""
        fractions = list(self.summary["fraction"].unique())
        return answers(self.summary) + ([certainty(self.lambdas, fractions)] if self.lambdas else [])

    def plot(self) -> Chart:
        """Score against the share of heads that stay input-dependent, with 95 % intervals (paper, Figure 2)."""
        from papa.reporting.figures.scores import scores_figure

        return scores_figure(self.summary)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every cell and seed."""
        return self.results.drop(columns=list(INFLUENCE_COLUMNS))

    def __str__(self) -> str:
        return "\n".join([*self.answers, "", self.table])

    _repr_markdown_ = __str__


def measure(
    encoder: TextEncoder,
    dataset: LabelledData,
    task: Task | None = None,
    *,
    constants: Sequence[ConstantsKind] = ("average",),
    orders: Sequence[Order] = ("lambda",),
    fractions: Sequence[float] = (1.0, 0.5, 0.125, 0.0625, 0.0),
    seeds: Sequence[int] = (0, 1, 2),
    train_rows: int | None = None,
    validation_rows: int | None = None,
    ranking_rows: int | None = None,
    ranking_seeds: Sequence[int] = (0, 1, 2),
    progress: bool = True,
) -> Measurement:
    """How far an encoder's score falls as its heads become constant: a study in one call, kept in memory.

    The scores are those of ``papa run`` for a study of the same encoder, rows, slots and seeds.

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> found = papa.measure(
        ...     encoder, {"train": data, "validation": data}, fractions=[1, 0], orders=["first_to_last"], progress=False
        ... )
        >>> found.to_pandas()[["fraction", "constant_heads", "seed"]].values.tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 2.0], [0.0, 72.0, 0.0], [0.0, 72.0, 1.0], [0.0, 72.0, 2.0]]

    Args:
        encoder: frozen.
        dataset: a task's name, or data sets, data frames or mappings of columns under ``train`` and ``validation``.
        task: which columns hold what; None takes ``text`` and ``label``.
        constants: kinds of constant matrices: ``average``, ``identity``, ``toeplitz``, ``zeros``, ``trained``.
        orders: in which heads become constant.
        fractions: shares of heads that stay input-dependent.
        seeds: a probe for each.
        train_rows: a sample of that many training rows; None takes all.
        validation_rows: likewise of validation rows.
        ranking_rows: λ is trained on a sample of this many training rows; None takes all.
        ranking_seeds: λ is trained once with each; heads become constant by its mean.
        progress: whether to show bars.

    Raises:
        DataError: a split or a column is missing, or a row does not fit the task.
        SpecError: a value is impossible, or training diverged.
    """
    encoder.check_whole()
    parts = {
        "constants": list(constants),
        "orders": list(orders),
        "fractions": list(fractions),
        "seeds": list(seeds),
        "ranking": {"rows": ranking_rows, "seeds": list(ranking_seeds)},
    }
    sampled = {"train_rows": train_rows, "validation_rows": validation_rows}
    with prepared(encoder, dataset, task, sampled=sampled, **parts) as one:
        return _Measuring(encoder, one, progress).measurement()


@dataclass
class _Measuring:
    """What a study computes, each part once."""

    encoder: TextEncoder
    prepared: PreparedStudy
    progress: bool
    constants: dict[str, ConstantMatrices] = field(default_factory=dict)
    lambdas: TrainedLambda | None = None
    scored: dict[tuple[Result, tuple[int, ...]], CellScores] = field(default_factory=dict)

    @property
    def study(self) -> StudySpec:
        return self.prepared.study

    def measurement(self) -> Measurement:
        cells = {cell: self._scores(cell, spec) for cell, spec in self._cells()}
        return Measurement(self._results(cells), self.lambdas, self.constants)

    def _cells(self) -> list[tuple[Cell, ConstantsSpec]]:
        study, model, task = self.study, self.encoder.reference.display, self.study.tasks[0].name
        return [
            (Cell(model, task, spec.label, order, fraction), spec)
            for spec, order, fraction in product(study.constants, study.orders, study.fractions)
        ]

    def _scores(self, cell: Cell, spec: ConstantsSpec) -> tuple[CellScores, ...]:
        """The scores of a cell: of all seeds at once, or of each where each has constant heads of its own."""
        heads_in_all = self.encoder.layers * self.encoder.heads
        result, found = cell.result(heads_in_all), list[CellScores]()
        order = result.order or "first_to_last"  # Any, where the order changes nothing.
        for seeds, draw in drawn_from(order, self.study.ranking.seeds[0], self.study.seeds).items():
            if (result, seeds) not in self.scored:
                heads = constant_heads(self._order(order, draw), result.fraction)
                self.scored[result, seeds] = self._probed(spec, heads, seeds)
            found.append(self.scored[result, seeds])
        return tuple(found)

    def _probed(self, spec: ConstantsSpec, heads: Sequence[Head], seeds: tuple[int, ...]) -> CellScores:
        one = self.prepared
        label = f"{len(heads)} constant heads" + (f" ({spec.label})" if heads else "")
        constants = self._matrices(spec.start if spec.kind == "trained" else spec.kind) if heads else None
        with bar(f"probing, {label}", self.progress) as report:
            return score_cell(
                self.encoder.encoder,
                constants,
                heads,
                one.corpus,
                one.study.tasks[0],
                seeds,
                trained=spec.kind == "trained",
                features=one.study.features,
                execution=one.study.execution,
                scratch=one.folder,
                progress=report,
            )

    def _matrices(self, kind: ConstantsKind) -> ConstantMatrices:
        if kind not in self.constants:
            encoder = self.encoder
            averaged = kind == "average"
            self.constants[kind] = (
                self._average() if averaged else control(kind, encoder.layers, encoder.heads, encoder.slots)
            )
        return self.constants[kind]

    def _average(self) -> ConstantMatrices:
        """Shard by shard, as a study averages, so that it is the same to the bit."""
        runner, split = self.encoder.encoder, self.prepared.corpus.split("train")
        tokens, before, sums = runner.tokens_per_batch(None), 0, None
        with bar("averaging", self.progress) as report:
            for shard in (split.shard(index) for index in range(len(split.shards))):
                moved = partial(_after, report, before, len(split))
                found = average_split(runner, shard, slots=self.encoder.slots, batch_tokens=tokens, progress=moved)
                before += len(shard)
                if sums is None:
                    sums = found
                else:
                    sums.merge(found)
        assert sums is not None
        return replace(sums.average(), encoder_digest=self.encoder.reference.digest)

    def _order(self, order: Order, draw: tuple[int, ...]) -> list[Head]:
        if needs_lambda(order):
            self.lambdas = self._lambdas() if self.lambdas is None else self.lambdas
        values = self.lambdas.mean if self.lambdas else None
        return head_order(order, values, self.encoder.layers, self.encoder.heads, draw)

    def _lambdas(self) -> TrainedLambda:
        """λ against the task's own average: one order for every kind of constants, so kinds meet on the same heads."""
        one = self.prepared
        counts = partial_counts(one.study.fractions, self.encoder.layers * self.encoder.heads)
        sets = [(order, count) for order in one.study.orders if needs_lambda(order) for count in counts.values()]
        return trained_lambda(self.encoder, self._matrices("average"), one, sets=sets, progress=self.progress)

    def _results(self, cells: Mapping[Cell, tuple[CellScores, ...]]) -> pandas.DataFrame:
        one, encoder = self.prepared, self.encoder.encoder
        task = one.study.tasks[0]
        answer = best_constant_answer(one.corpus, task, len(encoder.word_embeddings))
        with bar("probing word embeddings", self.progress) as report:
            words = evaluate_cell(
                WordEmbeddings(encoder),
                one.corpus,
                task,
                one.study.seeds,
                features=one.study.features,
                execution=one.study.execution,
                scratch=one.folder,
                progress=report,
            )
        measured = {
            found: _measured(task.metric, [score for part in found for score in part.scores])
            for found in dict.fromkeys(cells.values())
        }
        embeddings = _measured(task.metric, words)
        rows: list[dict[str, Any]] = []
        for cell, found in cells.items():
            for part in found:
                rows += result_rows(
                    cell,
                    task.metric,
                    part,
                    measured=measured[found],
                    one_answer=answer,
                    word_embeddings=embeddings,
                )
        return pandas.DataFrame(rows)


def _measured(metric: Metric, scores: Sequence[SeedScore]) -> Measured:
    by_seed = {one.seed: one.score for one in scores}
    return Measured.of(metric, by_seed, [one.examples for one in scores])


def _after(report: Any, before: int, total: int, done: int, _: int) -> None:
    report(before + done, total)
