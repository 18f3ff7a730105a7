"""What heads are worth, alone and together, on an encoder in which one head alone carries the
label.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batch
from papa.probes.packed import live_features
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.sets import LossValue, effect, greedy_places, shapley_values
from papa.spec import RankingSpec
from tests.ranking.planted import Planted, asked_of, silenced

pytestmark = pytest.mark.unchecked


@pytest.fixture
def asked(one_head: Planted, tmp_path: Path) -> Asked:
    asked = asked_of(one_head, tmp_path, ranking=RankingSpec(rows=48))
    return asked_of(one_head, tmp_path, ranking=asked.ranking, probe=asked.frozen_probe())


def test_a_planted_head_is_worth_what_all_are(asked: Asked, one_head: Planted) -> None:
    value, head = LossValue(asked), one_head.head
    everyone = frozenset(value.heads)
    whole, nothing = value(everyone), value(frozenset())
    assert whole > -0.01
    assert nothing < -0.5
    assert value({head}) == pytest.approx(whole, abs=1e-3)
    assert value(everyone - {head}) == pytest.approx(nothing, abs=1e-2)

    values, errors, _ = shapley_values(value, value.heads, 40, seed=0)
    planted = value.heads.index(head)
    assert values[planted] == pytest.approx(whole - nothing, abs=1e-2)
    assert np.abs(np.delete(values, planted)).max() < 1e-2
    assert errors.max() < 1e-2
    assert greedy_places(value, value.heads, 20)[planted] == len(value.heads) - 1

    # Without what it puts out nothing is worth anything: the score is the head's.
    with silenced(one_head):
        without, *_ = shapley_values(value, value.heads, 40, seed=0)
        alone = effect(asked).values[head]
    assert max(abs(without[planted]), abs(alone)) < 1e-2


def test_an_effect_is_what_the_loss_gains_with_the_head_constant(
    asked: Asked, one_head: Planted
) -> None:
    found, probe, split = effect(asked), asked.frozen_probe(), asked.corpus.split("train")
    assert found.evaluations == 7
    assert np.unravel_index(found.values.argmax(), found.values.shape) == one_head.head
    assert np.sort(found.values.flatten())[-2] < 0.05 < 0.5 < found.values.max()

    def loss(*heads: tuple[int, int]) -> float:
        total = terms = 0.0
        for row in asked.rows:
            batch = micro_batch(split, [int(row)])
            with replaced(one_head.encoder, one_head.constants, heads):
                features = live_features(one_head.encoder.token_states(batch), split, batch)
            labels = len(features.labels)
            total += labels * float(probe.losses(features, torch.zeros(1, 1, dtype=torch.int64)))
            terms += labels
        return total / terms

    for head in (one_head.head, (1, 0)):
        assert found.values[head] == pytest.approx(loss(head) - loss(), abs=1e-4)
