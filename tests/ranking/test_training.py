"""λ training on real text with trained weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.averager import AttentionAverager, average_split
from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenizedCorpus, load_corpus, tokenize_corpus
from papa.corpora.grouped import grouped_batches
from papa.corpora.sampling import sampled_rows
from papa.encoders.encoder import Encoder
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.probes.joint import PartGradient, Tensors
from papa.probes.parts import Part
from papa.ranking.training import lambda_gradients, train_lambda
from papa.spec import EncoderSpec, LayoutSpec, RankingSpec, TaskSpec
from papa.study_file import resolve_study

SLOTS = 32


@pytest.fixture(scope="module")
def task() -> TaskSpec:
    entry = {"name": "reviews", "slots": SLOTS, "train_rows": 96, "validation_rows": 32}
    document = {"name": "t", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="test").tasks[0]


@pytest.fixture(scope="module")
def corpus(task: TaskSpec, tmp_path_factory: pytest.TempPathFactory) -> TokenizedCorpus:
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tmp_path_factory.mktemp("ranking") / "corpus"
    tokenize_corpus(task, LayoutSpec(), load_tokenizer(reference), reference, folder, shard_rows=64)
    return load_corpus(folder)


@pytest.fixture(scope="module")
def average(minilm: Encoder, corpus: TokenizedCorpus) -> ConstantMatrices:
    averager = AttentionAverager(minilm.layers, minilm.heads, SLOTS)
    averager.merge(
        average_split(minilm, corpus.split("train"), slots=SLOTS, pad_token_id=corpus.pad_token_id, batch_tokens=1024)
    )
    return averager.result()


def test_lambda_is_trained_and_repeats(
    minilm: Encoder, corpus: TokenizedCorpus, task: TaskSpec, average: ConstantMatrices
) -> None:
    before = {name: value.clone() for name, value in minilm.model.state_dict().items()}
    seen: list[tuple[int, int]] = []
    ranking = RankingSpec(epochs=1, rows=64)
    lambdas = train_lambda(
        minilm, average, corpus, task, ranking, progress=lambda done, total: seen.append((done, total))
    )
    assert lambdas.shape == (6, 12)
    assert bool((lambdas != 0.5).all())
    assert torch.equal(lambdas, train_lambda(minilm, average, corpus, task, ranking))
    other = train_lambda(minilm, average, corpus, task, ranking.model_copy(update={"seed": 1}))
    assert not torch.equal(lambdas, other)
    assert seen[-1] == (64, 64)
    assert all(torch.equal(before[name], value) for name, value in minilm.model.state_dict().items())


def test_lambda_is_trained_on_a_sample_drawn_by_its_seed(
    minilm: Encoder, corpus: TokenizedCorpus, task: TaskSpec, average: ConstantMatrices
) -> None:
    for seed in (0, 1):
        here = lambda_gradients(encoder=minilm, constants=average, corpus=corpus, task=task, seed=seed)
        rows: list[int] = []

        def recorded(values: Tensors, parts: Sequence[Part], here=here, rows=rows) -> list[PartGradient]:
            rows.extend(int(row) for part in parts for row in part.rows)
            return here.each(values, parts)

        ranking = RankingSpec(epochs=1, rows=16, seed=seed)
        train_lambda(minilm, average, corpus, task, ranking, each=recorded)
        assert sorted(rows) == sorted(sampled_rows(len(corpus.split("train")), 16, seed).tolist())
        assert set(rows) != set(range(16))


def test_grouped_batches_hold_each_row_once_and_little_padding(corpus: TokenizedCorpus) -> None:
    split = corpus.split("train")
    rows = np.arange(len(split))
    batches = list(grouped_batches(split, rows, 8, (0, 0)))
    assert sorted(np.concatenate(batches).tolist()) == rows.tolist()
    padded = sum(len(batch) * split.lengths[batch].max() for batch in batches)
    unsorted = sum(8 * split.lengths[rows[at : at + 8]].max() for at in range(0, len(rows), 8))
    assert padded < unsorted
    again = list(grouped_batches(split, rows, 8, (0, 1)))
    assert any(not np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
