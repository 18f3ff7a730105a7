"""How minibatches are cut into parts: every row once, about equal tokens, and nothing lost of the
mean loss.
"""

from __future__ import annotations

import numpy as np
import pytest

from papa.corpora import TokenisedCorpus
from papa.corpora.tokens import IGNORED
from papa.probes.minibatches import parts_of

TOKENS = 60
SEED = (0, 0, 0)


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


def test_parts_have_about_equal_tokens_and_like_lengths(split) -> None:
    parts = parts_of(split, np.arange(len(split)), TOKENS, SEED)
    longest = int(split.lengths.max())
    tokens = [int(split.lengths[part.rows].sum()) for part in parts]
    assert max(tokens) <= TOKENS + longest
    first = np.concatenate([split.first_lengths[part.rows] for part in parts])
    assert (np.diff(first) >= 0).all()


def test_the_cut_does_not_depend_on_the_order_of_rows(split) -> None:
    minibatch = np.arange(16)
    one, other = (parts_of(split, rows, TOKENS, SEED) for rows in (minibatch, minibatch[::-1]))
    assert [part.rows.tolist() for part in one] == [part.rows.tolist() for part in other]


def test_dropout_depends_on_step_and_part_alone(split) -> None:
    def seeds(rows: np.ndarray, step: int) -> list[int]:
        return [part.dropout_seed for part in parts_of(split, rows, TOKENS, (7, 0, step))]

    one, other = seeds(np.arange(8), 3), seeds(np.arange(8, 16), 3)
    common = min(len(one), len(other))
    assert one[:common] == other[:common]
    assert not set(one) & set(seeds(np.arange(8), 4))


def test_large_parts_are_whole_minibatches(split) -> None:
    (part,) = parts_of(split, np.arange(8), 10**6, SEED)
    assert part.share == 1
    assert sorted(part.rows.tolist()) == list(range(8))


def test_a_minibatch_is_whole_or_cut_into_an_even_number(
    corpora: dict[str, TokenisedCorpus],
) -> None:
    split = corpora["cola"].split("train")
    counts = [len(parts_of(split, np.arange(rows), TOKENS, SEED)) for rows in range(1, 40)]
    assert counts[0] == 1
    assert max(counts) > 4
    assert all(count == 1 or count % 2 == 0 for count in counts)
