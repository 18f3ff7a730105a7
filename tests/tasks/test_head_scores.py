"""Head scores of finished steps, as they are read."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from papa.storage.artifacts import published
from papa.tasks.head_scores import SCORES, read_head_scores
from tests.storage.artifacts import reference

SEEDS = (0, 1)


@pytest.mark.parametrize(
    ("method", "native", "order_of_rows", "is_known"),
    [
        ("gates", True, None, False),
        ("gates", True, 0, True),
        ("gates", False, None, True),
        ("effect", True, None, True),
    ],
)
def test_seeds_of_a_native_head_have_an_interval_if_they_share_no_row(
    tmp_path: Path, method: str, native: bool, order_of_rows: int | None, is_known: bool
) -> None:
    """What is trained on a native head differs by seed in its rows alone."""
    artifacts = {}
    for seed in SEEDS:
        facts = {"native": native, "order_of_rows": order_of_rows, "draws": {method: 0}}
        values = np.random.default_rng(seed).random((2, 3))
        with published(tmp_path / str(seed), facts) as folder:
            save_file({method: values}, folder / SCORES)
        artifacts[seed] = reference(tmp_path / str(seed))
    scores = read_head_scores(method, artifacts)
    expected = np.mean([np.random.default_rng(seed).random((2, 3)) for seed in SEEDS], axis=0)
    np.testing.assert_array_equal(scores.mean, expected)
    assert np.isfinite(scores.interval).all() == is_known


@pytest.mark.parametrize("order_of_rows", [None, 0])
def test_causal_gates_of_seeds_are_joined(tmp_path: Path, order_of_rows: int | None) -> None:
    artifacts = {}
    for seed in SEEDS:
        with published(tmp_path / str(seed), {"order_of_rows": order_of_rows}) as folder:
            tensors = {
                "causal_gates": np.array([[0.2, 0.4 + seed / 10]]),
                "causal_gates kept": np.array([[0.5, 0.9 - seed / 10]]),
                "causal_gates settled": np.array([[True, seed == 0]]),
            }
            save_file(tensors, folder / SCORES)
        artifacts[seed] = reference(tmp_path / str(seed))
    frame = read_head_scores("causal_gates", artifacts).frame("causal_gates")
    assert frame["score"].tolist() == pytest.approx([0.2, 0.45])
    assert frame["interfering"].tolist() == pytest.approx([0.5, 0.15])
    assert frame["role"].isna().tolist() == [False, True]
    assert frame["low"].isna().tolist() == [order_of_rows is None] * 2
