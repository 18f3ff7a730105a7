"""The results of a study, a row a cell and seed (docs/results.md has the columns); the
head orders that its cells followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from papa.encoders.reference import EncoderReference
from papa.spec import Metric, TaskSpec
from papa.spec.cells import Cell
from papa.spec.orders import needs_lambda, scored_by
from papa.storage.artifacts import Address, ArtifactReference, read_metadata, reading
from papa.study.baseline import Baseline, read_baseline
from papa.study.own import Own
from papa.study.probe import Probe, ProbeScores, ScoredSeed, read_examples, read_scores
from papa.study.rank import Rank
from papa.study.score_heads import Ranking, ScoreHeads
from papa.study.step import Step, in_threads
from papa.study.tokenise import Tokenise

if TYPE_CHECKING:
    from papa.scores.baselines import ConstantAnswer
    from papa.scores.intervals import Measured
    from papa.scores.orders import FoundOrder

_FETCHED_AT_ONCE = 16
_Document = TypeVar("_Document")


@dataclass(frozen=True)
class StudyPart:
    """One encoder on one task, and its steps.

    Attributes:
        cells: each with the steps that score it: one for all seeds, or one per seed where each has
            its own constant heads. Cells that share a result share its steps.
        constants: the steps that make constant matrices, by their label.
        rankings: what scores heads, λ or a method, which every kind of constants shares: by ranking
            seed; none where no cell needs it.
        controls: λ trained on shuffled labels, by ranking seed.
        baseline: what its scores are worth; None for a model's own head, which no probe's baselines
            fit.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    cells: Mapping[Cell, tuple[Probe | Own, ...]]
    constants: Mapping[str, Step]
    rankings: Mapping[str, Mapping[int, Ranking]]
    baseline: Baseline | None
    controls: Mapping[int, Rank] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.encoder_label, self.task.name

    @property
    def average(self) -> Step | None:
        """What averages over the task's own text, where a cell uses it."""
        return self.constants.get("average")

    @property
    def corpus(self) -> Tokenise:
        """The task's text."""
        return self.probes[0].corpus

    @property
    def probes(self) -> list[Probe | Own]:
        """The steps that score its cells, one after the other."""
        return [step for probes in self.cells.values() for step in probes]

    def in_key(self) -> list[dict[str, Any]]:
        """What of its cells enters a cache key beside their steps: an entry for each step."""
        return [
            {**cell.columns(), "metric": self.task.metric}
            for cell, probes in self.cells.items()
            for _ in probes
        ]


def probes_of(parts: Iterable[StudyPart]) -> dict[str, Step]:
    """The steps that score the cells of parts, by number."""
    return {
        str(number): step
        for number, step in enumerate(step for part in parts for step in part.probes)
    }


def results_table(parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]) -> Any:
    """A pandas frame with the columns of ``results.parquet``; cells that share a result have rows
    of their own.
    """
    import pandas

    rows: list[dict[str, Any]] = []
    for part in parts:
        metric = part.task.metric
        documents = _read(read_scores, part.probes, found)
        examples = _read(read_examples, part.probes, found)
        measured = {
            probes: measured_of(
                metric,
                [(documents[step].scores, examples[step]) for step in probes],
                found[probes[0]].path,
            )
            for probes in dict.fromkeys(part.cells.values())
        }
        answer = words = None
        if part.cells and part.baseline:
            reference = read_baseline(found[part.baseline])
            answer = reference.always_one_answer
            of_words = [(reference.word_embeddings, reference.word_examples)]
            words = measured_of(metric, of_words, found[part.baseline].path)
        for cell, probes in part.cells.items():
            for step in probes:
                rows += _result_rows(
                    cell,
                    metric,
                    documents[step],
                    measured=measured[probes],
                    one_answer=answer,
                    word_embeddings=words,
                )
    return pandas.DataFrame(rows)


def _result_rows(
    cell: Cell,
    metric: Metric,
    found: ProbeScores,
    *,
    measured: Measured,
    one_answer: ConstantAnswer | None,
    word_embeddings: Measured | None,
) -> list[dict[str, Any]]:
    """A row for each seed of a finished probing, in one of the cells that it scores."""
    import numpy as np

    from papa.scores.intervals import Measured
    from papa.scores.metrics import influence

    nothing = np.zeros(0, np.float32)
    of_answer = influence(metric, one_answer.examples).astype(np.float32) if one_answer else nothing
    words = word_embeddings or Measured.same(measured.scores, math.nan, nothing)
    return [
        {
            **cell.columns(),
            "constant_heads": len(found.constant_heads),
            "seed": scored.seed,
            "metric": metric,
            "score": scored.score,
            "seconds": scored.seconds,
            "unseen_share": math.nan if found.unseen_share is None else found.unseen_share,
            "heads": found.heads,
            "positive": found.positive or "",
            "classes": found.classes,
            "always_one_answer": one_answer.score if one_answer else math.nan,
            "one_answer": (one_answer and one_answer.answer) or "",
            "word_embeddings": words.scores[scored.seed],
            "influence": measured.influence[scored.seed].astype(np.float32),
            "one_answer_influence": of_answer,
            "word_embeddings_influence": words.influence[scored.seed].astype(np.float32),
        }
        for scored in found.scores
    ]


def measured_of(
    metric: Metric, parts: Iterable[tuple[Sequence[ScoredSeed], Any]], address: Address
) -> Measured:
    """The scores of all seeds, from those of some seeds and what examples add to them."""
    from papa.scores.intervals import Measured

    with reading(address):
        seeds = [seed for part in parts for seed in zip(*part, strict=True)]
        scores = {scored.seed: scored.score for scored, _ in seeds}
        return Measured.of(metric, scores, [examples for _, examples in seeds])


def _read(
    read: Callable[[Path], _Document],
    steps: Iterable[Step],
    found: Mapping[Step, ArtifactReference],
) -> dict[Step, _Document]:
    """What steps made, each read once."""
    distinct = list(dict.fromkeys(steps))
    documents = in_threads(lambda step: read(found[step].folder), distinct, _FETCHED_AT_ONCE)
    return dict(zip(distinct, documents, strict=True))


def found_orders(
    parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]
) -> dict[tuple[str, str], dict[str, FoundOrder]]:
    """The orders of the cells in which some heads are constant and others not, by (encoder label,
    task), then by name. What one ranking took, or a probe that several read, counts for the first
    order that follows it.
    """
    from papa.scores.orders import FoundOrder

    orders: dict[tuple[str, str], dict[str, FoundOrder]] = {}
    for part in parts:
        known, before = orders.setdefault(part.pair, {}), set[Step]()
        heads = part.encoder.layers * part.encoder.heads
        for cell, probes in part.cells.items():
            if cell.order in known or not 0 < probes[0].count < heads:
                continue
            by_seed = {
                seed: ranked
                for probe, ranked in ((probe, probe.ranked(found)) for probe in probes)
                for seed in probe.seeds
            }
            rankings = set[Step](probes[0].rankings.values())
            frozen = {
                step.probe for step in rankings if isinstance(step, ScoreHeads) and step.probe
            }
            took = {step: read_metadata(found[step].path) for step in (rankings | frozen) - before}
            before |= rankings | frozen
            scored = [_evaluations(took[step], cell.order) for step in took if step in rankings]
            known[cell.order] = FoundOrder(
                by_seed,
                sum(step["worker_seconds"] for step in took.values()) if took else None,
                sum(scored) if scored else None,
            )
    return orders


def _evaluations(ranking: Mapping[str, Any], order: str) -> int:
    return ranking["epochs"] if needs_lambda(order) else ranking["evaluations"][scored_by(order)]
