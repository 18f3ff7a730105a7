"""λ training on real text with trained weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.minibatches import Part
from papa.probes.training import JointLearner
from papa.ranking.learned import train_lambda
from papa.ranking.rows import rows_of_seed
from papa.ranking.seeds import MOVED, is_stable
from papa.spec import Order, RankingSpec, TaskSpec

Learn = Callable[..., Tensor]


@pytest.fixture
def learn(
    encoder: Encoder, corpus: TokenisedCorpus, task: TaskSpec, average: ConstantMatrices
) -> Learn:
    return partial(train_lambda, encoder, average, corpus, task)


def test_lambda_is_trained_on_a_sample_drawn_by_its_seed_and_repeats(
    learn: Learn, encoder: Encoder, corpus: TokenisedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: value.clone() for name, value in encoder.model.state_dict().items()}
    loss, found, lambdas = JointLearner.loss, set[int](), list[Tensor]()
    for seed in (0, 1, 2, 0):
        rows: list[int] = []
        told: list[tuple[int, int]] = []

        def recorded(own: JointLearner, part: Part, rows: list[int] = rows) -> Tensor:
            rows.extend(part.rows.tolist())
            return loss(own, part)

        monkeypatch.setattr(JointLearner, "loss", recorded)
        progress = partial(lambda to, *both: to.append(both), told)
        lambdas.append(learn(RankingSpec(epochs=1, rows=16), seed=seed, progress=progress))
        assert sorted(rows) == sorted(rows_of_seed(len(corpus.split("train")), 16, seed).tolist())
        assert len(lambdas) == 4 or found.isdisjoint(rows), "seeds have rows of their own"
        found |= {*rows}
        assert told[-1] == (16, 16)
    assert lambdas[0].shape == (1, encoder.layers, 12)
    assert bool((lambdas[0] != 0.5).all())
    assert torch.equal(lambdas[0], lambdas[3])
    assert not torch.equal(lambdas[0], lambdas[1])
    after = encoder.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.unchecked
def test_lambda_is_trained_for_the_tasks_own_epochs_or_until_its_sets_stay(
    learn: Learn, task: TaskSpec
) -> None:
    every = learn(RankingSpec(rows=32))
    assert len(every) == task.probe.epochs == 4
    assert torch.equal(learn(RankingSpec(rows=32, epochs=1, learning_rate=5e-4)), every[:1])
    # At the task's own rate every λ is .5: an order that has not moved is not stable, whatever its
    # sets do.
    assert every.std(dim=(1, 2)).max() < MOVED
    stable = RankingSpec(rows=32, until_stable=True)
    assert torch.equal(learn(stable, sets=[("lambda", 1)]), every)

    stable = stable.model_copy(update={"learning_rate": 0.1})
    every = learn(stable.model_copy(update={"until_stable": False}))

    def first_settled(sets: list[tuple[Order, int]]) -> int:
        return next((epochs for epochs in range(2, 4) if is_stable([*every[:epochs]], sets)), 4)

    counts = {first_settled([("lambda", count)]): count for count in range(1, 2 * 12)}
    assert len(counts) > 1, "every set settles at the same epoch: the test shows nothing"
    for epochs, count in counts.items():
        told: list[tuple[int, int]] = []
        progress = partial(lambda to, *both: to.append(both), told)
        found = learn(stable, sets=[("lambda", count)], progress=progress)
        assert torch.equal(found, every[:epochs])
        assert told[-1] == (128, 128)
