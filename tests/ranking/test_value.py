"""What heads are worth together, on an encoder in which one head alone carries the label."""

from __future__ import annotations

import numpy as np
import pytest

from papa.probes.probes import Probe
from papa.ranking.scores.asked import frozen_probe
from papa.ranking.scores.sets import greedy_places, shapley_values
from papa.ranking.value import FrozenLosses, LossValue
from tests.ranking.planted import Planted, asked_of, silenced


@pytest.fixture(scope="session")
def probe(one_head: Planted, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return frozen_probe(asked_of(one_head, tmp_path_factory.mktemp("features")))


def value_of(given: Planted, probe: Probe) -> LossValue:
    split = given.corpus.split("train")
    rows = np.arange(0, len(split), 4)
    return LossValue(FrozenLosses(given.encoder, given.constants, split, rows, probe))


def test_a_planted_head_is_worth_what_all_are(one_head: Planted, probe: Probe) -> None:
    value = value_of(one_head, probe)
    everyone = frozenset(value.heads)
    whole, nothing = value(everyone), value(frozenset())
    assert whole > -0.01
    assert nothing < -0.5
    assert value({one_head.head}) == pytest.approx(whole, abs=1e-3)
    assert value(everyone - {one_head.head}) == pytest.approx(nothing, abs=1e-2)

    values, errors, _ = shapley_values(value, value.heads, 40, seed=0)
    planted = value.heads.index(one_head.head)
    assert values[planted] == pytest.approx(whole - nothing, abs=1e-2)
    assert np.abs(np.delete(values, planted)).max() < 1e-2
    assert errors.max() < 1e-2
    assert greedy_places(value, value.heads, 20)[planted] == len(value.heads) - 1

    # Without what it puts out nothing is worth anything: the score is the head's.
    with silenced(one_head):
        without, *_ = shapley_values(value_of(one_head, probe), value.heads, 40, seed=0)
    assert abs(without[planted]) < 1e-2
