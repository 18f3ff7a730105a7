"""Encoders in which one head alone carries the label."""

from __future__ import annotations

import pytest

from tests.ranking.planted import Planted, planted


@pytest.fixture(scope="session", params=[(0, 2), (1, 1)], ids=str)
def one_head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """The planted head is in the first layer, then in the last."""
    return planted(tmp_path_factory.mktemp("planted"), request.param)
