"""Laws of the order of rows, and of how minibatches are cut into parts: every row once, about equal
tokens, and nothing lost of the mean loss.
"""

from __future__ import annotations

import numpy as np
import pytest

from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.tokens import IGNORED
from papa.probes.minibatches import (
    WINDOW_ROWS,
    epoch_order,
    epoch_windows,
    parts_of,
)

TOKENS = 60
SEED = (0, 0, 0)


@pytest.mark.parametrize(
    ("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 8), (5000, WINDOW_ROWS)]
)
def test_an_epoch_holds_every_row_once(rows: int, window: int) -> None:
    assert np.array_equal(np.sort(epoch_order(rows, 0, 0, window)), np.arange(rows))


def test_seeds_share_windows_and_differ_inside() -> None:
    first, second = (epoch_order(100, 3, seed, 16) for seed in (0, 1))
    windows = epoch_windows(100, 3, 16)
    for start, members in zip(range(0, 100, 16), windows, strict=True):
        one, other = first[start : start + 16], second[start : start + 16]
        assert np.array_equal(np.sort(one), members)
        assert np.array_equal(np.sort(other), members)
        assert not np.array_equal(one, other) or len(members) < 5


def test_epochs_and_windows_differ_in_their_order() -> None:
    assert np.array_equal(epoch_order(100, 1, 2, 16), epoch_order(100, 1, 2, 16))
    assert not np.array_equal(epoch_order(100, 0, 0, 16), epoch_order(100, 1, 0, 16))
    assert not np.array_equal(epoch_windows(100, 0, 16)[0], epoch_windows(100, 1, 16)[0])
    order = epoch_order(64, 0, 0, 32)
    first, second = (np.argsort(np.argsort(order[start : start + 32])) for start in (0, 32))
    assert not np.array_equal(first, second)


@pytest.fixture(params=["cola", "rte", "wnut17", "wikitext"])
def split(request: pytest.FixtureRequest, corpora: dict[str, TokenisedCorpus]):
    return corpora[request.param].split("train")


def test_every_row_with_a_label_is_in_one_part(split) -> None:
    minibatch = np.random.default_rng(0).permutation(len(split))[:16]
    parts = parts_of(split, minibatch, TOKENS, SEED)
    labelled = [
        row
        for row in minibatch.tolist()
        if not split.label_per_token
        or (split.labels[split.offsets[row] : split.offsets[row + 1]] != IGNORED).any()
    ]
    found = np.concatenate([part.rows for part in parts]).tolist()
    assert len(parts) > 1
    assert len(set(found)) == len(found)
    assert set(labelled) <= set(found) <= set(minibatch.tolist())
    assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-12)
    assert len({part.dropout_seed for part in parts}) == len(parts)
