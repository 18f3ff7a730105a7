"""λ training on real text with trained weights."""

from __future__ import annotations

import pytest
import torch

from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import rows_of_seed
from papa.encoders.encoder import Encoder
from papa.probes.joint import JointGradients, PartGradient
from papa.probes.minibatches import Part
from papa.ranking.learned import train_lambda
from papa.ranking.seeds import MOVED, is_stable
from papa.spec import Order, RankingSpec, TaskSpec


def test_lambda_is_trained_and_repeats(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec, average: ConstantMatrices
) -> None:
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    seen: list[tuple[int, int]] = []
    ranking = RankingSpec(epochs=1, rows=64)
    lambdas = train_lambda(
        encoder,
        average,
        corpus,
        task,
        ranking,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert lambdas.shape == (1, encoder.layers, 12)
    assert bool((lambdas != 0.5).all())
    assert torch.equal(lambdas, train_lambda(encoder, average, corpus, task, ranking))
    other = train_lambda(encoder, average, corpus, task, ranking, seed=1)
    assert not torch.equal(lambdas, other)
    assert seen[-1] == (64, 64)
    assert all(
        torch.equal(before[name], value) for name, value in encoder.model.state_dict().items()
    )


def test_lambda_is_trained_on_a_sample_drawn_by_its_seed(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    average: ConstantMatrices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gradient, found = JointGradients.gradient, set[int]()
    for seed in (0, 1, 2):
        rows: list[int] = []

        def recorded(own: JointGradients, part: Part, rows=rows) -> PartGradient:
            rows.extend(part.rows.tolist())
            return gradient(own, part)

        monkeypatch.setattr(JointGradients, "gradient", recorded)
        train_lambda(encoder, average, corpus, task, RankingSpec(epochs=1, rows=16), seed=seed)
        assert sorted(rows) == sorted(rows_of_seed(len(corpus.split("train")), 16, seed).tolist())
        assert set(rows) != set(range(16))
        assert found.isdisjoint(rows), "seeds have rows of their own"
        found |= {*rows}


@pytest.mark.unchecked
def test_lambda_is_trained_for_the_tasks_own_epochs(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec, average: ConstantMatrices
) -> None:
    ranking = RankingSpec(rows=32)
    every = train_lambda(encoder, average, corpus, task, ranking)
    assert len(every) == task.probe.epochs == 4
    asked = [
        train_lambda(encoder, average, corpus, task, RankingSpec(rows=32, epochs=1)),
        train_lambda(encoder, average, corpus, task, RankingSpec(rows=32, learning_rate=5e-4)),
    ]
    assert torch.equal(asked[0], every[:1])
    assert torch.equal(asked[1], every)

    # At the task's own rate every λ is .5: an order that has not moved is not stable, whatever its
    # sets do.
    sets: list[tuple[Order, int]] = [("lambda", 1)]
    stable = ranking.model_copy(update={"until_stable": True})
    assert every.std(dim=(1, 2)).max() < MOVED
    assert torch.equal(train_lambda(encoder, average, corpus, task, stable, sets=sets), every)


@pytest.mark.unchecked
def test_training_ends_once_lambda_has_moved_and_its_sets_stay(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec, average: ConstantMatrices
) -> None:
    ranking = RankingSpec(rows=32, learning_rate=0.1)
    every = train_lambda(encoder, average, corpus, task, ranking)

    def first_settled(sets: list[tuple[Order, int]]) -> int:
        return next((epochs for epochs in range(2, 4) if is_stable([*every[:epochs]], sets)), 4)

    counts = {first_settled([("lambda", count)]): count for count in range(1, 2 * 12)}
    assert len(counts) > 1, "every set settles at the same epoch: the test shows nothing"
    for epochs, count in counts.items():
        told: list[tuple[int, int]] = []
        found = train_lambda(
            encoder,
            average,
            corpus,
            task,
            ranking.model_copy(update={"until_stable": True}),
            sets=[("lambda", count)],
            progress=lambda *both, told=told: told.append(both),
        )
        assert torch.equal(found, every[:epochs])
        assert told[-1] == (128, 128)
