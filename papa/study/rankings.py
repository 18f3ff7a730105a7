"""The steps that score heads, one for each seed of ``ranking``."""

from __future__ import annotations

from papa.encoders.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from papa.spec.cells import partial_counts
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import needs_lambda
from papa.study import costs
from papa.study.average import Average
from papa.study.rank import Rank
from papa.study.score_heads import ScoreHeads
from papa.study.tokenise import Tokenise


def lambda_steps(
    study: StudySpec,
    name: str,
    encoder: EncoderReference,
    corpus: Tokenise,
    average: Average,
    task: TaskSpec,
    size: costs.Size,
) -> dict[int, Rank]:
    """λ of each ranking seed against the task's own average: one order for every kind of constants,
    so kinds meet on the same heads.

    Args:
        study: its orders, fractions and ranking.
        name: of the encoder and the task.
        encoder: whose heads.
        corpus: what λ is trained on.
        average: what attention is mixed with.
        task: what λ is trained for.
        size: of the task.
    """
    ranking = study.ranking
    counts = sorted(set(partial_counts(study.fractions, encoder.layers * encoder.heads).values()))
    sets = tuple(
        (order, count) for order in study.orders if needs_lambda(order) for count in counts
    )
    flops, parts = (
        costs.ranking_flops(encoder, size, task, ranking),
        costs.training_parts(size, task),
    )
    return {
        seed: Rank(
            f"rank · {name}{_alone(study, seed)}",
            flops,
            encoder,
            corpus,
            average,
            task,
            ranking,
            seed,
            sets,
            parts=parts,
        )
        for seed in ranking.seeds
    }


def score_steps(
    study: StudySpec,
    name: str,
    encoder: EncoderReference,
    corpus: Tokenise,
    average: Average,
    task: TaskSpec,
    size: costs.Size,
    method: str,
) -> dict[int, ScoreHeads]:
    """The scores of each ranking seed by a method; streamed methods share steps, of one seed where
    seeds would draw nothing.

    Args:
        study: its ranking.
        name, encoder, corpus, average, task, size: as of ``lambda_steps``.
        method: of ``HEAD_SCORES``.
    """
    ranking, streamed = study.ranking, HEAD_SCORES[method].streamed
    methods = tuple(sorted(one for one in HEAD_SCORES if HEAD_SCORES[one].streamed))
    what = f"scores · {name} · {'one pass' if streamed else method}"
    flops = costs.scoring_flops(encoder, size, task, ranking, method)
    seeds = ranking.seeds[:1] if streamed and ranking.rows is None else ranking.seeds
    return {
        seed: ScoreHeads(
            what if len(seeds) == 1 else f"{what}{_alone(study, seed)}",
            flops,
            encoder,
            corpus,
            average,
            task,
            ranking,
            methods if streamed else (method,),
            seed,
        )
        for seed in seeds
    }


def _alone(study: StudySpec, seed: int) -> str:
    return f" · seed {seed}" if len(study.ranking.seeds) > 1 else ""
