"""Effects of single heads, on an encoder in which one head alone carries the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batch
from papa.probes.packed import live_features
from papa.ranking.scores.asked import frozen_probe
from papa.ranking.scores.sets import effect
from papa.spec import RankingSpec
from tests.ranking.planted import Planted, asked_of, silenced

ROWS = 48


@pytest.mark.unchecked
def test_an_effect_is_what_the_loss_gains_with_the_head_constant(
    one_head: Planted, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    asked = asked_of(
        one_head,
        tmp_path,
        ranking=RankingSpec(rows=ROWS),
        progress=lambda *both: told.append(both),
    )
    found, probe = effect(asked), frozen_probe(asked)
    assert (found.evaluations, told) == (7, [(done, 6) for done in range(1, 7)])
    assert np.unravel_index(found.values.argmax(), found.values.shape) == one_head.head
    assert found.values[one_head.head] > 0.5
    assert np.sort(found.values.flatten())[-2] < 0.05

    split = asked.corpus.split("train")

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

    with silenced(one_head):
        without = effect(asked).values
    assert abs(without[one_head.head]) < 0.01
