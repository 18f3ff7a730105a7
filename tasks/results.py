"""The results of a study, a row for each cell and seed (docs/results.md), and its head orders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from papa.models.reference import EncoderReference
from papa.ranking.orders import scored_by
from papa.spec import Metric, TaskSpec
from papa.spec.orders import Cell, Head
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.tasks.cell import ScoredSeed, read_baseline, read_examples, read_scores
from papa.tasks.context import in_threads
from papa.tasks.rank import read_head_scores
from papa.tasks.step import Step
from papa.tasks.substitutes import SubstituteSource

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

    from papa.ranking.head_scores import HeadScores, TrainedLambda
    from papa.scores.intervals import SeedScores
    from papa.scores.order_comparison import StudiedOrder

Artifacts = Mapping[Step, ArtifactReference]
"""The finished artifact of every step."""


@dataclass(frozen=True)
class PairSteps:
    """The steps of one encoder on one task, by what they are for.

    Attributes:
        encoder_label: The encoder's short name in tables.
        encoder: The encoder.
        task: The task.
        text: What tokenises its text.
        cells: What scores each cell: a step for each seed; of a native head, which no seed changes,
            one for all seeds with the same constant heads. Cells that share a result share steps.
        substitutes: The substitutes that cells use, by label.
        rankings: What computes head scores, by method and ranking seed.
        baselines: What scores the baselines: of a probe a step for each seed; of a native head one
            step, none without labels.
        controls: λ trained on shuffled labels, by ranking seed; {} without a control.
        frozen_probes: The probes that methods of scoring heads read.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    text: Step
    cells: Mapping[Cell, tuple[Step, ...]]
    substitutes: Mapping[str, SubstituteSource]
    rankings: Mapping[str, Mapping[int, Step]]
    baselines: tuple[Step, ...]
    controls: Mapping[int, Step]
    frozen_probes: tuple[Step, ...]

    @property
    def pair(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.encoder_label, self.task.name

    @property
    def average(self) -> Step | None:
        """What averages over the task's own text, where a cell uses it."""
        substitute = self.substitutes.get("average")
        return substitute.source if substitute else None

    def head_scores(self, artifacts: Artifacts) -> dict[str, HeadScores | TrainedLambda]:
        """The head scores that its rankings computed, by method."""
        controls = {seed: artifacts[step] for seed, step in self.controls.items()}
        scores_by_method = {}
        for method, steps_by_seed in self.rankings.items():
            rankings = {seed: artifacts[step] for seed, step in steps_by_seed.items()}
            scores_by_method[method] = read_head_scores(method, rankings, controls)
        return scores_by_method


def results_table(pairs: Iterable[PairSteps], artifacts: Artifacts) -> DataFrame:
    """The frame of ``results.parquet``; cells that share a result have rows of their own."""
    import pandas

    return pandas.DataFrame([row for pair in pairs for row in _rows(pair, artifacts)])


def _rows(pair: PairSteps, artifacts: Artifacts) -> Iterator[dict[str, Any]]:
    """A row for each cell of a pair and each seed that scores it."""
    import numpy as np

    from papa.scores.intervals import SeedScores
    from papa.scores.metrics import influence

    metric = pair.task.metric
    steps = {step for scoring in pair.cells.values() for step in scoring}
    scores_of = in_threads(lambda step: read_scores(artifacts[step]), steps)
    examples_of = in_threads(lambda step: read_examples(artifacts[step]), steps)
    no_influence = np.zeros(0, np.float32)
    always_one_answer = math.nan
    one_answer = ""
    one_answer_influence = no_influence
    word_embeddings: SeedScores | None = None
    if pair.cells and pair.baselines:
        baselines = [read_baseline(artifacts[step]) for step in pair.baselines]
        answer = baselines[0].one_answer
        always_one_answer = answer.score
        one_answer = answer.answer or ""
        one_answer_influence = influence(metric, answer.examples).astype(np.float32)
        if baselines[0].word_embeddings:
            word_embeddings = _measured(
                metric, [(baseline.word_embeddings, baseline.examples) for baseline in baselines]
            )
    for cell, scoring in pair.cells.items():
        measured = _measured(
            metric, [(scores_of[step].scores, examples_of[step]) for step in scoring]
        )
        beside = word_embeddings or SeedScores(
            dict.fromkeys(measured.scores, math.nan), dict.fromkeys(measured.scores, no_influence)
        )
        for step in scoring:
            scores = scores_of[step]
            unseen_share = math.nan if scores.unseen_share is None else scores.unseen_share
            for scored_seed in scores.scores:
                seed = scored_seed.seed
                yield {
                    **vars(cell),
                    "constant_heads": len(scores.constant_heads),
                    "seed": seed,
                    "metric": metric,
                    "score": scored_seed.score,
                    "seconds": scored_seed.seconds,
                    "unseen_share": unseen_share,
                    "heads": scores.heads,
                    "positive": scores.positive or "",
                    "classes": scores.classes,
                    "same_answer": scores.same_answer,
                    "always_one_answer": always_one_answer,
                    "one_answer": one_answer,
                    "word_embeddings": beside.scores[seed],
                    "influence": measured.influence[seed].astype(np.float32),
                    "one_answer_influence": one_answer_influence,
                    "word_embeddings_influence": beside.influence[seed].astype(np.float32),
                }


def _measured(
    metric: Metric, scored: Iterable[tuple[tuple[ScoredSeed, ...], np.ndarray]]
) -> SeedScores:
    """The scores of all seeds, from those of some seeds and what examples add to them."""
    from papa.scores.intervals import SeedScores

    scores: dict[int, float] = {}
    examples_by_seed: list[np.ndarray] = []
    for scored_seeds, examples in scored:
        for scored_seed, of_seed in zip(scored_seeds, examples, strict=True):
            scores[scored_seed.seed] = scored_seed.score
            examples_by_seed.append(of_seed)
    return SeedScores.from_examples(metric, scores, examples_by_seed)


def head_orders(
    pairs: Iterable[PairSteps], artifacts: Artifacts
) -> dict[tuple[str, str], dict[str, StudiedOrder]]:
    """The head orders of cells with some heads constant, by (encoder, task) and name.

    Work that two orders share, such as λ for both of its directions, counts for the first alone.
    """
    from papa.scores.order_comparison import StudiedOrder

    orders: dict[tuple[str, str], dict[str, StudiedOrder]] = {}
    for pair in pairs:
        orders_of_pair = orders.setdefault(pair.pair, {})
        counted: set[Step] = set()
        for cell, scoring in pair.cells.items():
            heads = scoring[0]["heads"]
            layers, heads_per_layer = heads.size
            is_partial = 0 < heads.count < layers * heads_per_layer
            if cell.order in orders_of_pair or not is_partial:
                continue
            heads_by_seed: dict[int, list[Head]] = {}
            for step in scoring:
                heads_by_seed |= dict.fromkeys(step["seeds"], step["heads"].in_order(artifacts))
            rankings = dict.fromkeys(heads.rankings.values())
            frozen_probes = {
                step["frozen_probe"] for step in rankings if step.arguments.get("frozen_probe")
            }
            work = [step for step in (*rankings, *frozen_probes) if step not in counted]
            counted.update(work)
            metadata = {step: read_metadata(artifacts[step].path) for step in work}
            method = scored_by(cell.order)
            evaluations = [
                facts["epochs"] if method == "lambda" else facts["evaluations"][method]
                for step, facts in metadata.items()
                if step in rankings
            ]
            seconds = sum(facts["worker_seconds"] for facts in metadata.values())
            orders_of_pair[cell.order] = StudiedOrder(
                heads_by_seed,
                seconds if metadata else None,
                sum(evaluations) if evaluations else None,
            )
    return orders
