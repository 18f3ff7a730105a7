"""Roles of heads by causal gates."""

import numpy as np
import pytest

from papa.ranking.causal_gates import CausalGateScores


def test_the_largest_of_three_scores_names_the_role() -> None:
    """Three heads whose gates came to rest, and one whose gates still move."""
    scores = CausalGateScores(
        np.array([[[0.9, 0.1, 0.1, 0.9]]]),
        pulled_open=np.array([[1.0, 0.2, 0.9, 1.0]]),
        settled=np.array([[True, True, True, False]]),
    )
    frame = scores.frame("causal_gates")
    assert frame["facilitating"].tolist() == pytest.approx([0.9, 0.1, 0.1, 0.9])
    assert frame["interfering"].tolist() == pytest.approx([0.0, 0.8, 0.1, 0.0])
    assert frame["irrelevant"].tolist() == pytest.approx([0.1, 0.18, 0.81, 0.1])
    assert frame["role"][:3].tolist() == ["facilitating", "interfering", "irrelevant"]
    assert frame["role"].isna()[3]
