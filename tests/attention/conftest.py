"""Every law is tested on every variant of every family."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.attention.cases import Case
from tests.encoders.models import MODELS


@pytest.fixture(scope="module", params=sorted(MODELS))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
