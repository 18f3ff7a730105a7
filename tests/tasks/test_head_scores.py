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
