"""Custom code: what identifies it in keys."""

from collections.abc import Callable

import pytest

from papa.scores.custom import CustomCode, NamedCode


@pytest.mark.parametrize(
    "code_with",
    [
        lambda code: CustomCode(metric=code),
        lambda code: CustomCode(probe=code),
        lambda code: CustomCode(score=code),
    ],
    ids=["metric", "probe", "score"],
)
def test_other_code_has_another_digest(code_with: Callable[[NamedCode], CustomCode]) -> None:
    first, second = (code_with(NamedCode("code:name", digest, None)) for digest in "ab")
    assert first.digest != second.digest
