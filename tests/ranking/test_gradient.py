"""Gradients of heads, against finite differences of the loss and on planted heads; scores by labels
follow the head itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EncoderReference
from papa.probes.packed import live_features
from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.scores.gradient import gradient
from papa.ranking.scores.sets import greedy, shapley
from papa.spec import RankingSpec

HEADS = [(0, 0), (0, 7), (1, 4)]


def scaled(reference: EncoderReference, factors: dict[tuple[int, int], float]) -> Encoder:
    """The encoder with what some heads put out multiplied, in its output maps."""
    encoder = load_encoder(reference)
    for (layer, head), factor in factors.items():
        output = encoder.model.encoder.layer[layer].attention.output.dense
        weight = output.weight.detach().clone()
        weight[:, head * encoder.head_width : (head + 1) * encoder.head_width] *= factor
        output.weight = nn.Parameter(weight, requires_grad=False)
    return encoder


def test_it_is_the_mean_size_of_finite_differences(
    asked: Asked, reference: EncoderReference
) -> None:
    asked = replace(asked, ranking=RankingSpec(rows=6))
    found, probe = gradient(asked), asked.frozen_probe()
    split, step = asked.corpus.split("train"), 0.03

    def losses(encoder: Encoder) -> np.ndarray:
        values = []
        for row in asked.rows:
            batch = micro_batch(split, [int(row)])
            features = live_features(encoder.token_states(batch), split, batch)
            values.append(float(probe.losses(features, torch.zeros(1, 1, dtype=torch.int64))))
        return np.array(values)

    for head in HEADS:
        above, below = (losses(scaled(reference, {head: 1 + sign * step})) for sign in (1, -1))
        differences = np.abs(above - below) / (2 * step)
        assert found.values[head] == pytest.approx(differences.mean(), rel=0.03)
        error = differences.std(ddof=1) / np.sqrt(6)
        assert found.standard_error is not None
        assert found.standard_error[head] == pytest.approx(error, rel=0.05)
    assert found.values.std() > 0.1 * found.values.mean(), "heads differ"


@pytest.mark.unchecked
@pytest.mark.parametrize("method", [gradient, shapley, greedy])
def test_a_score_falls_where_its_head_is_silenced(
    method: Callable[[Asked], Scored], asked: Asked, reference: EncoderReference
) -> None:
    """What the head with the largest score puts out goes nowhere; no other score falls as far."""
    asked = replace(asked, ranking=RankingSpec(rows=16, evaluations=100))
    before = method(asked).values
    layer, head = divmod(int(before.argmax()), before.shape[1])
    silenced = scaled(reference, {(layer, head): 0.0})
    after = method(replace(asked, encoder=silenced)).values
    fall = before - after
    assert fall.argmax() == before.argmax()
    assert fall.max() > 1.5 * np.sort(np.abs(fall), axis=None)[-2]
    if method is not greedy:
        assert abs(after[layer, head]) < 0.1 * before.max(), "a place alone is never nothing"
