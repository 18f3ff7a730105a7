"""The results of a study, a row a cell and seed (docs/results.md), and the orders it followed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from papa.models.reference import EncoderReference
from papa.ranking.orders import scored_by
from papa.spec import Metric, TaskSpec
from papa.spec.orders import Cell, Head
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.tasks.substitutes import Constants
from papa.tasks.probe import read_baseline, read_examples, read_scores
from papa.tasks.rank import read_head_scores
from papa.tasks.step import Step, in_threads

if TYPE_CHECKING:
    from papa.scores.intervals import Measured
    from papa.scores.orders import FoundOrder


@dataclass(frozen=True)
class StudyPart:
    """One encoder on one task, and its steps: of each cell those that score it, one for each seed,
    or for all where nothing depends on a seed (cells that share a result share them);
    the constants by label; what scores heads, by method and ranking seed; λ trained on shuffled
    labels, by ranking seed; a baseline for each seed, of a model's own head always one answer, none
    without labels; the ``frozen`` probes that score heads.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    text: Step
    cells: Mapping[Cell, tuple[Step, ...]]
    constants: Mapping[str, Constants]
    rankings: Mapping[str, Mapping[int, Step]]
    baselines: tuple[Step, ...]
    controls: Mapping[int, Step]
    frozen: tuple[Step, ...]

    @property
    def pair(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.encoder_label, self.task.name

    @property
    def average(self) -> Step | None:
        """What averages over the task's own text, where a cell uses it."""
        own = self.constants.get("average")
        return own.source if own else None

    def head_scores(self, found: Mapping[Step, ArtifactReference]) -> dict[str, Any]:
        """What each of its rankings found, a ``HeadScores`` or a ``TrainedLambda``."""
        controls = {seed: found[step] for seed, step in self.controls.items()}
        return {
            method: read_head_scores(
                method, {seed: found[step] for seed, step in by_seed.items()}, controls=controls
            )
            for method, by_seed in self.rankings.items()
        }


def results_table(parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]) -> Any:
    """The frame of ``results.parquet``; cells that share a result have rows of their own."""
    import pandas

    return pandas.DataFrame([row for part in parts for row in _rows(part, found)])


def _rows(part: StudyPart, found: Mapping[Step, ArtifactReference]) -> Iterator[dict[str, Any]]:
    """A row for each cell of a part and each seed that scores it."""
    import numpy as np

    from papa.scores.intervals import Measured
    from papa.scores.metrics import influence

    metric, steps = part.task.metric, dict.fromkeys(chain(*part.cells.values()))
    held = in_threads(lambda step: (read_scores(found[step]), read_examples(found[step])), steps)
    nothing = np.zeros(0, np.float32)
    score, said, of_answer, words = math.nan, "", nothing, None
    if part.cells and part.baselines:
        (answer, *_), *_ = baselines = [read_baseline(found[step]) for step in part.baselines]
        score, said = answer.score, answer.answer or ""
        of_answer = influence(metric, answer.examples).astype(np.float32)
        of_words = [(scored, examples) for _, scored, examples in baselines if scored]
        words = _measured(metric, of_words) if of_words else None
    for cell, probes in part.cells.items():
        scored = [(held[step][0].scores, held[step][1]) for step in probes]
        measured = _measured(metric, scored)
        beside = words or Measured(
            dict.fromkeys(measured.scores, math.nan), dict.fromkeys(measured.scores, nothing)
        )
        for one in (held[step][0] for step in probes):
            for seed in one.scores:
                yield {
                    **vars(cell),
                    "constant_heads": len(one.constant_heads),
                    "seed": seed.seed,
                    "metric": metric,
                    "score": seed.score,
                    "seconds": seed.seconds,
                    "unseen_share": math.nan if one.unseen_share is None else one.unseen_share,
                    "heads": one.heads,
                    "positive": one.positive or "",
                    "classes": one.classes,
                    "same_answer": one.same_answer,
                    "always_one_answer": score,
                    "one_answer": said,
                    "word_embeddings": beside.scores[seed.seed],
                    "influence": measured.influence[seed.seed].astype(np.float32),
                    "one_answer_influence": of_answer,
                    "word_embeddings_influence": beside.influence[seed.seed].astype(np.float32),
                }


def _measured(metric: Metric, parts: Iterable[Sequence[Any]]) -> Measured:
    """The scores of all seeds, from those of some seeds and what examples add to them."""
    from papa.scores.intervals import Measured

    seeds = [seed for part in parts for seed in zip(*part, strict=True)]
    scores = {scored.seed: scored.score for scored, _ in seeds}
    return Measured.of(metric, scores, [examples for _, examples in seeds])


def found_orders(
    parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]
) -> dict[tuple[str, str], dict[str, FoundOrder]]:
    """The orders of cells with some heads constant, by (encoder, task); shared costs count once."""
    from papa.scores.orders import FoundOrder

    orders: dict[tuple[str, str], dict[str, FoundOrder]] = {}
    for part in parts:
        known, before = orders.setdefault(part.pair, {}), set[Step]()
        for cell, probes in part.cells.items():
            heads = probes[0]["heads"]
            if cell.order in known or not 0 < heads.count < heads.size[0] * heads.size[1]:
                continue
            by_seed: dict[int, list[Head]] = {}
            for probe in probes:
                by_seed |= dict.fromkeys(probe["seeds"], probe["heads"].ranked(found))
            rankings = set(heads.rankings.values())
            frozen = {probe for step in rankings if (probe := step.arguments.get("probe"))}
            took = {step: read_metadata(found[step].path) for step in (rankings | frozen) - before}
            before |= rankings | frozen
            method, scored = scored_by(cell.order), [took[one] for one in took if one in rankings]
            counts = [
                of["epochs"] if method == "lambda" else of["evaluations"][method] for of in scored
            ]
            seconds = sum(of["worker_seconds"] for of in took.values()) if took else None
            known[cell.order] = FoundOrder(by_seed, seconds, sum(counts) if counts else None)
    return orders
