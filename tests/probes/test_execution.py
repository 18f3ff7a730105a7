"""No execution setting changes results: every one is changed by itself, or named with what tests it
instead.

All other fields of a specification are in keys: tests/tasks/test_keys.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papa.attention.average import AttentionSums, average_split
from papa.corpora import load_corpus, tokenise_corpus
from papa.encoders.encoder import Encoder
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.probes.cell import CellScores, score_cell
from papa.ranking.learned import train_lambda
from papa.spec import ExecutionSpec, FeaturesSpec, LayoutSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head, head_order

CHANGED: dict[str, Any] = {"batch_tokens": 64, "shard_rows": 5, "features_budget_gb": 0.0}
ELSEWHERE = {
    "workers": "the same bits for any number: test_average.py and test_rank.py in tests/tasks",
    "ray_address": "where the workers are",
    "device": "docs/limits.md says what depends on it",
}
Run = Callable[..., tuple[list[Head], CellScores]]


def test_every_execution_setting_is_named() -> None:
    assert CHANGED.keys() | ELSEWHERE.keys() == ExecutionSpec.model_fields.keys()


@pytest.fixture(scope="module")
def run(
    encoder: Encoder,
    reference: EncoderReference,
    tasks: dict[str, TaskSpec],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Tokenise, average, rank and score: the order of heads, and the scores with half of them
    constant.
    """

    def found(dropout: bool, seed: int = 0, **execution: Any) -> tuple[list[Head], CellScores]:
        task, settings = tasks["wikitext"], ExecutionSpec(**execution)
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
        lambdas = train_lambda(encoder, constants, corpus, task, ranking)[-1]
        heads = list(head_order("lambda", lambdas, encoder.layers, encoder.heads))
        scores = score_cell(
            *(encoder, constants, heads[: len(heads) // 2], corpus, task, (seed,)),
            trained=False,
            features=FeaturesSpec(),
            execution=settings,
            scratch=folder,
        )
        return heads, scores

    return found


def _merged(sums: AttentionSums, more: AttentionSums) -> AttentionSums:
    sums.merge(more)
    return sums


def examples(found: CellScores) -> np.ndarray:
    return found.scores[0].examples


@pytest.mark.parametrize("dropout", [False, True])
def test_results_stay_what_they_are(run: Run, dropout: bool) -> None:
    """To the rounding of sums in float32, which another seed exceeds."""
    heads, scores = run(dropout)
    for name, value in CHANGED.items():
        others, found = run(dropout, **{name: value})
        assert others == heads, name
        assert found.unseen_share == scores.unseen_share, name
        np.testing.assert_allclose(examples(found), examples(scores), atol=1e-3, err_msg=name)
    _, other = run(dropout, seed=1)
    assert np.abs(examples(other) - examples(scores)).max() > 0.01
