"""Scores by labels follow the head itself, on the embedded encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from papa.encoders.reference import EncoderReference
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.gradient import gradient
from papa.ranking.scores.sets import effect, greedy, shapley
from papa.spec import RankingSpec
from tests.ranking.test_gradient import scaled

METHODS = {"gradient": gradient, "shapley": shapley, "effect": effect, "greedy": greedy}


@pytest.mark.parametrize("method", METHODS)
def test_a_score_falls_where_its_head_is_silenced(
    method: str, asked: Asked, reference: EncoderReference
) -> None:
    """What the head with the largest score puts out goes nowhere; no other score falls as far."""
    asked = replace(asked, ranking=RankingSpec(rows=16, evaluations=100))
    before = METHODS[method](asked).values
    layer, head = divmod(int(before.argmax()), before.shape[1])
    silenced = scaled(reference, {(layer, head): 0.0})
    after = METHODS[method](replace(asked, encoder=silenced)).values
    fall = before - after
    assert fall.argmax() == before.argmax()
    assert fall.max() > 1.5 * np.sort(np.abs(fall), axis=None)[-2]
    if method != "greedy":
        assert abs(after[layer, head]) < 0.1 * before.max(), "a place alone is never nothing"
