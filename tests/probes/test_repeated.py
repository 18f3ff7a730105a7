"""The same inputs twice, from the encoder's files on: the same bits on one machine with one number
of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from papa.attention.average import average_split
from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EncoderReference
from papa.probes.cell import CellScores, score_cell
from papa.ranking.learned import train_lambda
from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec, TaskSpec
from papa.spec.orders import head_order

EXECUTION = ExecutionSpec(batch_tokens=512)


def run(
    corpus: TokenisedCorpus,
    reference: EncoderReference,
    task: TaskSpec,
    scratch: Path,
    seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, CellScores, CellScores]:
    """Average, λ, and the scores of a cell with half of its heads constant, frozen and trained."""
    encoder = load_encoder(reference)
    constants = average_split(
        encoder, corpus.split("train"), slots=task.slots, batch_tokens=512
    ).average()
    lambdas = train_lambda(encoder, constants, corpus, task, RankingSpec(), seed=seed)
    heads = head_order("lambda", lambdas[-1], encoder.layers, encoder.heads)[
        : encoder.layers * encoder.heads // 2
    ]
    frozen, trained = (
        score_cell(
            *(encoder, constants, heads, corpus, task, [seed]),
            trained=trained,
            features=FeaturesSpec(),
            execution=EXECUTION,
            scratch=scratch,
        )
        for trained in (False, True)
    )
    return constants.matrices, lambdas, frozen, trained


def same(one: CellScores, other: CellScores) -> bool:
    (first,), (second,) = one.scores, other.scores
    return first.score == second.score and np.array_equal(first.examples, second.examples)


def test_the_same_run_twice_gives_the_same_bits(
    corpus_of: Callable[..., TokenisedCorpus],
    reference: EncoderReference,
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    # Negative log-perplexity: a mean of logarithms shows what a count of right answers would round
    # away.
    task = tasks["wikitext"]
    once, again = (run(corpus_of("wikitext"), reference, task, tmp_path) for _ in range(2))
    assert torch.equal(once[0], again[0])
    assert torch.equal(once[1], again[1])
    assert same(once[2], again[2])
    assert same(once[3], again[3])
    other = run(corpus_of("wikitext"), reference, task, tmp_path, seed=1)
    assert torch.equal(once[0], other[0]), "no seed has a part in averages"
    assert not torch.equal(once[1], other[1])
    assert not same(once[2], other[2])
    assert not same(once[3], other[3])
