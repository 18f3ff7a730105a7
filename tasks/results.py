"""The tables of a study: results, a row for each cell and seed (docs/results.md), scores of heads,
and head orders.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas
from jaxtyping import Float

from papa.ranking.head_scores import HeadScores
from papa.ranking.kv_groups import COLUMN, group_scores, with_group_column
from papa.ranking.orders import scoring_method
from papa.scores.metrics import influence
from papa.scores.order_comparison import StudiedOrder
from papa.spec import Metric, StudySpec
from papa.spec.orders import Head, Unit
from papa.storage.artifacts import in_threads, read_metadata
from papa.tasks.cell import read_baseline, read_examples, read_scores
from papa.tasks.pair_steps import Artifacts, PairSteps
from papa.tasks.step import Step

_MISSING_INFLUENCE = np.zeros(0, np.float32)
"""What the score of a baseline loses without each row, if there is no such baseline."""


def results_table(pairs: Iterable[PairSteps], artifacts: Artifacts) -> pandas.DataFrame:
    """Return the frame of ``results.parquet``; cells that share a result have rows of their own."""
    return pandas.DataFrame([row for pair in pairs for row in _rows(pair, artifacts)])


def _rows(pair: PairSteps, artifacts: Artifacts) -> Iterator[dict[str, Any]]:
    """Yield a row for each cell of a pair and each seed that scores it."""
    metric = pair.task.metric
    steps = {step for cell_steps in pair.cells.values() for step in cell_steps}
    scores_of = in_threads(lambda step: read_scores(artifacts[step]), steps)
    influences_of = in_threads(
        lambda step: _influences(metric, read_examples(artifacts[step])), steps
    )
    always_one_answer = math.nan
    one_answer = ""
    answer_influence = _MISSING_INFLUENCE
    words_scores: dict[int, float] = {}
    words_influences: dict[int, Float[np.ndarray, " rows"]] = {}
    if pair.baselines:
        baselines = [read_baseline(artifacts[step]) for step in pair.baselines]
        answer, *_ = baselines[0]
        always_one_answer = answer.score
        one_answer = answer.answer or ""
        (answer_influence,) = _influences(metric, answer.examples[None])
        for _, scored_seeds, examples in baselines:
            seeds = [scored_seed.seed for scored_seed in scored_seeds]
            words_scores |= {scored_seed.seed: scored_seed.score for scored_seed in scored_seeds}
            words_influences |= zip(seeds, _influences(metric, examples), strict=True)
    for cell, cell_steps in pair.cells.items():
        for step in cell_steps:
            scores = scores_of[step]
            unseen_share = math.nan if scores.unseen_share is None else scores.unseen_share
            for scored_seed, seed_influence in zip(scores.scores, influences_of[step], strict=True):
                seed = scored_seed.seed
                yield {
                    **vars(cell),
                    "constant_heads": len(scores.constant_heads),
                    "seed": seed,
                    "metric": metric,
                    "score": scored_seed.score,
                    "seconds": scored_seed.seconds,
                    "unseen_share": unseen_share,
                    "heads": pair.encoder.layers * pair.encoder.heads,
                    "positive": scores.positive or "",
                    "classes": scores.classes,
                    "same_answer": scores.same_answer,
                    "always_one_answer": always_one_answer,
                    "one_answer": one_answer,
                    "word_embeddings": words_scores.get(seed, math.nan),
                    "influence": seed_influence,
                    "one_answer_influence": answer_influence,
                    "word_embeddings_influence": words_influences.get(seed, _MISSING_INFLUENCE),
                }


def _influences(
    metric: Metric, examples_by_seed: Float[np.ndarray, "seeds rows k"]
) -> list[Float[np.ndarray, " rows"]]:
    """Return, for each seed, what the score loses without each row."""
    return [influence(metric, examples).astype(np.float32) for examples in examples_by_seed]


def head_orders(
    pairs: Iterable[PairSteps], artifacts: Artifacts, unit: Unit
) -> dict[tuple[str, str], dict[str, StudiedOrder]]:
    """Return the orders of units in cells with some heads constant, by (encoder, task) and name; a
    group is its first head.

    Work that two orders share, such as λ for both of its directions, counts for the first alone.
    """
    orders: dict[tuple[str, str], dict[str, StudiedOrder]] = {}
    for pair in pairs:
        orders_of_pair = orders.setdefault(pair.names, {})
        counted: set[Step] = set()
        for cell, cell_steps in pair.cells.items():
            heads = cell_steps[0]["heads"]
            layers, heads_per_layer = heads.size
            is_partial = 0 < heads.count < layers * heads_per_layer
            if cell.order in orders_of_pair or not is_partial:
                continue
            score_steps = dict.fromkeys(heads.score_steps.values())
            frozen_probes = {
                step["frozen_probe"] for step in score_steps if step.arguments.get("frozen_probe")
            }
            work = [step for step in (*score_steps, *frozen_probes) if step not in counted]
            counted.update(work)
            metadata = {step: read_metadata(artifacts[step].path) for step in work}
            method = scoring_method(cell.order)
            evaluations = [
                facts["epochs"] if method == "lambda" else facts["evaluations"][method]
                for step, facts in metadata.items()
                if step in score_steps
            ]
            seconds = sum(facts["worker_seconds"] for facts in metadata.values())
            orders_of_pair[cell.order] = StudiedOrder(
                _units_by_seed(cell_steps, artifacts, pair.encoder.heads_per_unit(unit)),
                seconds if metadata else None,
                sum(evaluations) if evaluations else None,
            )
    return orders


def _units_by_seed(
    cell_steps: Iterable[Step], artifacts: Artifacts, heads_per_unit: int
) -> dict[int, list[Head]]:
    """Return by probe seed all units in the order of a cell; a group is its first head."""
    units_by_seed: dict[int, list[Head]] = {}
    for step in cell_steps:
        order = [
            (layer, head)
            for layer, head in step["heads"].heads_in_order(artifacts)
            if head % heads_per_unit == 0
        ]
        units_by_seed |= dict.fromkeys(step["seeds"], order)
    return units_by_seed


def heads_table(
    pairs: Iterable[PairSteps],
    scores_by_pair: Mapping[tuple[str, str], Mapping[str, HeadScores]],
    study: StudySpec,
) -> pandas.DataFrame:
    """Return the frame of ``heads.parquet``; external scores, which the study names, have no
    interval. Of groups each head has its group's score, and its number in a column.
    """
    columns = ["encoder", "task", "method", "layer", "head", "score", "low", "high"]
    if study.unit == "kv_group":
        columns.insert(columns.index("head") + 1, COLUMN)
    frames: list[pandas.DataFrame] = []
    for pair in pairs:
        heads_per_unit = pair.encoder.heads_per_unit(study.unit)
        external = {
            f"scores:{scores.name}": HeadScores(
                group_scores(np.array(scores.values, float), heads_per_unit)[None]
            )
            for scores in study.scores
        }
        encoder, task = pair.names
        for method, scores in {**external, **scores_by_pair[pair.names]}.items():
            frame = scores.frame(method).assign(encoder=encoder, task=task)
            if study.unit == "kv_group":
                frame = with_group_column(frame, heads_per_unit)
            frames.append(frame)
    return pandas.concat(frames)[columns] if frames else pandas.DataFrame(columns=columns)
