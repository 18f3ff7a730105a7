"""Every law is tested on every variant of every family, and on some of them on a GPU too."""

from collections.abc import Iterator

import pytest
import torch

from tests.heads.cases import Case
from tests.make import ENCODERS
from tests.virtual_gpu import virtual_gpu

GPU = "bert", "deberta_v3"


@pytest.fixture(params=ENCODERS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


@pytest.fixture(params=[*ENCODERS, *(f"{name} on a GPU" for name in GPU)])
def anywhere(request: pytest.FixtureRequest) -> Iterator[Case]:
    name, *on_gpu = request.param.split(" on ")
    if not on_gpu:
        yield Case(name)
        return
    with virtual_gpu():
        yield Case(name, "cuda")


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
