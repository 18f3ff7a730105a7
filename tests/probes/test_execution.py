"""No execution setting changes results: every one is changed by itself, or named with what tests it
instead; and the same run twice gives the same bits, on one machine with one number of threads.

All other fields of a specification are in keys: tests/study/test_keys.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.attention.average import AttentionSums, average_split
from papa.corpora import load_corpus, tokenise_corpus
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.probes.cell import score_cell
from papa.probes.training import SeedScore
from papa.ranking.learned import train_lambda
from papa.spec import ExecutionSpec, FeaturesSpec, LayoutSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head, head_order

CHANGED: dict[str, Any] = {"batch_tokens": 64, "shard_rows": 5, "features_budget_gb": 0.0}
ELSEWHERE = {
    "workers": "the same bits for any number: test_average.py and test_rank.py in tests/study",
    "device": "docs/limits.md says what depends on it",
}


@dataclass(frozen=True)
class Found:
    """An average, λ after its epoch, the order of heads by it, and the scores with half of them
    constant.
    """

    matrices: torch.Tensor
    lambdas: torch.Tensor
    heads: list[Head]
    score: SeedScore
    unseen_share: float | None

    @property
    def examples(self) -> np.ndarray:
        return self.score.examples


Run = Callable[..., Found]


def test_every_execution_setting_is_named() -> None:
    assert CHANGED.keys() | ELSEWHERE.keys() == ExecutionSpec.model_fields.keys()


@pytest.fixture(scope="module")
def run(
    reference: EncoderReference,
    tasks: dict[str, TaskSpec],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Load, tokenise, average, rank and score."""

    def found(
        dropout: bool = False,
        *,
        seed: int = 0,
        ranking_seed: int = 0,
        trained: bool = False,
        **execution: Any,
    ) -> Found:
        encoder, task, settings = (
            load_encoder(reference),
            tasks["wikitext"],
            ExecutionSpec(**execution),
        )
        probe = task.probe.model_copy(update={"encoder_dropout": dropout})
        task = task.model_copy(update={"probe": probe})
        folder: Path = tmp_path_factory.mktemp("run")
        corpus = load_corpus(
            tokenise_corpus(
                *(task, LayoutSpec(), load_tokenizer(reference), reference, folder / "corpus"),
                shard_rows=settings.shard_rows,
            )
        )
        train = corpus.split("train")
        tokens = encoder.tokens_per_batch(settings.batch_tokens)
        shards = [
            average_split(encoder, train.shard(index), slots=task.slots, batch_tokens=tokens)
            for index in range(len(train.shards))
        ]
        assert (len(shards) > 1) == (settings.shard_rows < len(train))
        constants = reduce(_merged, shards).average()
        ranking = RankingSpec(learning_rate=0.1, epochs=1)
        lambdas = train_lambda(encoder, constants, corpus, task, ranking, seed=ranking_seed)[-1]
        heads = list(head_order("lambda", lambdas, encoder.layers, encoder.heads))
        (score,), unseen_share = score_cell(
            *(encoder, constants, heads[: len(heads) // 2], corpus, task, (seed,)),
            trained=trained,
            features=FeaturesSpec(),
            execution=settings,
            scratch=folder,
        )
        return Found(constants.matrices, lambdas, heads, score, unseen_share)

    return found


@pytest.fixture(scope="module")
def first(run: Run) -> Run:
    """The first of several equal runs."""
    return cache(run)


def _merged(sums: AttentionSums, more: AttentionSums) -> AttentionSums:
    sums.merge(more)
    return sums


@pytest.mark.parametrize("dropout", [False, True])
def test_results_stay_what_they_are(run: Run, first: Run, dropout: bool) -> None:
    """To the rounding of sums in float32, which another seed exceeds."""
    as_ever = first(dropout=dropout, trained=False)
    for name, value in CHANGED.items():
        found = run(dropout, **{name: value})
        assert found.heads == as_ever.heads, name
        assert found.unseen_share == as_ever.unseen_share, name
        np.testing.assert_allclose(found.examples, as_ever.examples, atol=1e-3, err_msg=name)
    assert np.abs(run(dropout, seed=1).examples - as_ever.examples).max() > 0.01


@pytest.mark.parametrize("trained", [False, True])
def test_the_same_run_twice_gives_the_same_bits(run: Run, first: Run, trained: bool) -> None:
    """Negative log-perplexity is a mean of logarithms, which shows what a count of right answers
    would round away.
    """
    once, again = first(dropout=False, trained=trained), run(trained=trained)
    assert torch.equal(once.matrices, again.matrices)
    assert torch.equal(once.lambdas, again.lambdas)
    assert once.score.score == again.score.score
    assert np.array_equal(once.examples, again.examples)
    other = run(trained=trained, seed=1, ranking_seed=1)
    assert torch.equal(once.matrices, other.matrices), "no seed has a part in averages"
    assert not torch.equal(once.lambdas, other.lambdas)
    assert not np.array_equal(once.examples, other.examples)
