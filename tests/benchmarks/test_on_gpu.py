"""The script for a GPU runs small on a CPU, where each result equals that of the CPU."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks import on_gpu
from benchmarks.on_gpu import SMALL, Extent, Line, difference

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(
    "lines_of",
    [on_gpu.family_lines, on_gpu.encoder_lines, on_gpu.sweep_lines, on_gpu.average_lines],
)
def test_every_result_is_within_its_limit(
    lines_of: Callable[[str, Extent], Iterator[Line]],
) -> None:
    lines = list(lines_of("cpu", SMALL))
    assert [line.what for line in lines if not line.is_within] == []
    assert any(line.limit for line in lines)


def test_a_difference_beyond_its_limit_fails() -> None:
    assert not difference("", [1.0, 2.0], [1.0, 2.5], 0.1, control=1.0).is_within
    assert difference("", [1.0, 2.0], [1.0, 2.05], 0.1, control=1.0).is_within


def test_results_that_a_wrong_device_could_not_change_fail() -> None:
    assert not difference("", [1.0], [1.0], 0.1, control=0.0).is_within
