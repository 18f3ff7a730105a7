"""The steps that score heads, one for each seed of ``ranking``."""

from __future__ import annotations

from papa.encoders.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from papa.spec.cells import partial_counts
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import needs_lambda
from papa.study import costs
from papa.study.average import Average
from papa.study.frozen_probe import FrozenProbe
from papa.study.rank import Rank
from papa.study.score_heads import Ranking, ScoreHeads
from papa.study.tokenise import Tokenise


def ranking_steps(
    study: StudySpec,
    name: str,
    encoder: EncoderReference,
    corpus: Tokenise,
    average: Average,
    task: TaskSpec,
    size: costs.Size,
    method: str,
) -> dict[int, Ranking]:
    """What scores heads against the task's own average, by ranking seed: one order for every kind
    of constants, so kinds meet on the same heads.

    Streamed methods share steps, of one seed where seeds would draw nothing.
    """
    ranking, seeds = study.ranking, study.ranking.seeds
    if method == "lambda":
        what, flops = f"rank · {name}", costs.ranking_flops(encoder, size, task, ranking)
        heads, parts = encoder.layers * encoder.heads, costs.training_parts(size, task)
        counts = sorted(set(partial_counts(study.fractions, heads).values()))
        sets = tuple(
            (order, count) for order in filter(needs_lambda, study.orders) for count in counts
        )
    else:
        scoring = HEAD_SCORES[method]
        streamed = scoring.streamed
        every = tuple(sorted(method for method in HEAD_SCORES if HEAD_SCORES[method].streamed))
        what = f"scores · {name} · {'one pass' if streamed else method}"
        flops = costs.scoring_flops(encoder, size, task, ranking, method)
        shared = scoring.evaluations and scoring.frozen_probe
        parts = costs.valuing_parts(size, task, ranking) if shared else 1
        seeds = seeds[:1] if streamed and ranking.rows is None else seeds

    def of_seed(seed: int) -> Ranking:
        own = f"{what} · seed {seed}" if len(seeds) > 1 else what
        asked = encoder, corpus, average, task, ranking
        if method == "lambda":
            return Rank(own, flops, *asked, seed, sets, parts=parts)
        probe = None
        if task.head == "probe" and scoring.frozen_probe:
            frozen = f"frozen probe · {name}{f' · seed {seed}' if len(seeds) > 1 else ''}"
            training = costs.frozen_probe_flops(encoder, size, task)
            probe = FrozenProbe(frozen, training, encoder, corpus, task, seed)
        methods = every if streamed else (method,)
        return ScoreHeads(own, flops, *asked, methods, seed, probe, parts=parts)

    return {seed: of_seed(seed) for seed in seeds}
