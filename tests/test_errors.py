"""Errors of the work reach the driver as they were raised: a worker sends them pickled."""

from __future__ import annotations

import pickle

import pytest

from papa.errors import DamagedError, HubUnreachableError, NumbersError, PapaError, SpecError


@pytest.mark.parametrize(
    "error",
    [
        SpecError("the study's key is unknown: correct it"),
        HubUnreachableError("the encoder a/b", "no route"),
        DamagedError("the digest differs", "/store/artifacts/probe/0"),
        NumbersError("the output of layer 1, batch 2 of the train split", "use other weights"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_after_its_way_from_a_worker(error: PapaError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
