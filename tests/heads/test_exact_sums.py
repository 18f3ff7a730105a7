"""Averages against exact rational sums, however inputs are grouped into batches and shards."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from papa.heads import kinds
from papa.heads.average import GRID, AttentionAverager, average_of
from papa.heads.constants import constant_product, control
from papa.heads.kinds import Averages, low_rank, relative
from papa.heads.sums import AttentionSums
from papa.models.layer import Heads, LayerAttention
from papa.models.slots import TokenSlots

LAYERS = 2
HEADS = 2
SLOTS = 6
INPUTS = 600
UNIT = Fraction(1, 2**24)
"""Half the distance of float32's numbers at 1."""


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor]:
    """Attention of many inputs, sharp and flat, and where they have tokens."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(INPUTS, SLOTS, generator=generator) < 0.7
    mask[:, -1] = True
    scores = torch.randn(INPUTS, LAYERS, HEADS, SLOTS, SLOTS, generator=generator) * 6
    scores = scores.masked_fill(~mask[:, None, None, None, :], -torch.inf)
    return scores.softmax(dim=-1), mask


class Given(LayerAttention):
    """A call whose A is its queries."""

    def probabilities(self, heads: Heads) -> Tensor:
        return self.query


def summed(probabilities: Tensor, mask: Tensor, rows: np.ndarray, batch: int) -> AttentionSums:
    averager = AttentionAverager(LAYERS, HEADS, SLOTS)
    for start in range(0, len(rows), batch):
        chosen = torch.from_numpy(rows[start : start + batch])
        for layer in range(LAYERS):
            attention = probabilities[chosen, layer]
            slots = torch.arange(SLOTS)[None]
            real = mask[chosen]
            token_slots = TokenSlots(slots, slots, real, real.sum(1), slots[:, -1:, None])
            given = Given(attention, attention, attention, None, 1, token_slots)
            averager.observe(given, layer)
    return averager.result()


def merged(shards: list[AttentionSums]) -> AttentionSums:
    whole = AttentionSums(np.zeros_like(shards[0].sums), np.zeros_like(shards[0].counts))
    for shard in shards:
        whole.merge(shard)
    return whole


def exact(probabilities: Tensor, mask: Tensor) -> list[Fraction]:
    """Σ A / count of every entry, without rounding; 0 where no input has both slots."""
    both = mask[:, None, None, :, None] & mask[:, None, None, None, :]
    counts = both.sum(0).expand(LAYERS, HEADS, SLOTS, SLOTS).flatten().tolist()
    columns = probabilities.where(both, torch.tensor(0.0)).flatten(1).T.tolist()
    sums = [sum(map(Fraction, values), start=Fraction()) for values in columns]
    return [total / max(count, 1) for total, count in zip(sums, counts, strict=True)]


@pytest.mark.parametrize("batch", [1, 8])
def test_an_average_is_exact_within_its_bound(inputs: tuple[Tensor, Tensor], batch: int) -> None:
    """A batch of b inputs is added up in float32, (b - 1) · 2⁻²⁴ of it at most, and rounded to the
    grid, 2⁻³³; both are shared by all inputs that have the entry. The average itself is float32.
    """
    sums = summed(*inputs, np.arange(INPUTS), batch)
    counts = np.broadcast_to(sums.counts, sums.sums.shape).flatten().tolist()
    averages = average_of(sums).matrices.flatten().tolist()
    of_grid = Fraction(INPUTS // batch, int(2 * GRID))
    apart = []
    for value, total, expected, count in zip(
        averages, sums.sums.flatten().tolist(), exact(*inputs), counts, strict=True
    ):
        n = int(max(count, 1))
        bound = expected * (batch - 1) * UNIT + of_grid / n
        assert abs(Fraction(total) / n - expected) <= bound
        assert abs(Fraction(value) - expected) <= bound + UNIT * expected
        assert (Fraction(total) * int(GRID)).denominator == 1
        apart.append(abs(Fraction(total) / n - expected))
    assert max(apart) > 0, "sums on a grid are not the exact ones"


@pytest.mark.parametrize("seed", range(2))
def test_shards_merge_to_the_same_bits(inputs: tuple[Tensor, Tensor], seed: int) -> None:
    batch = 4
    random = np.random.default_rng(seed)
    whole = summed(*inputs, np.arange(INPUTS), batch)
    batches = random.permutation(np.arange(INPUTS).reshape(-1, batch))
    bounds = np.sort(random.choice(np.arange(1, len(batches)), 20, replace=False))
    shards = np.split(batches, bounds)
    sums_of_shards = [summed(*inputs, shard.flatten(), batch) for shard in shards]
    random.shuffle(sums_of_shards)  # type: ignore[arg-type]
    middle = len(sums_of_shards) // 2
    halves = [merged(sums_of_shards[:middle]), merged(sums_of_shards[middle:])]
    for merged_sums in (merged(sums_of_shards), merged(halves)):
        assert np.array_equal(merged_sums.sums, whole.sums)
        assert np.array_equal(merged_sums.counts, whole.counts)
        assert torch.equal(average_of(merged_sums).matrices, average_of(whole).matrices)


def picture(matrix: np.ndarray) -> list[str]:
    return ["".join("x" if entry else "." for entry in row) for row in matrix]


def test_fixed_patterns() -> None:
    assert torch.equal(control("identity", 2, 3, 4).matrices[1, 2], torch.eye(4))
    assert torch.equal(control("zeros", 2, 3, 4).matrices, torch.zeros(2, 3, 4, 4))
    toeplitz = control("toeplitz", 2, 3, 4).matrices[0, 0]
    assert toeplitz[1].tolist() == pytest.approx([1 / 2, 1, 1 / 2, 1 / 3])
    assert picture(kinds.first(4)) == ["x..."] * 4
    assert picture(kinds.previous(4)) == ["....", "x...", ".x..", "..x."]
    assert picture(kinds.next_slot(4)) == [".x..", "..x.", "...x", "...."]
    assert picture(kinds.local(4, window=1)) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert picture(kinds.local(4)) == ["xxx.", "xxxx", "xxxx", ".xxx"]


def test_fibonacci_heads_share_no_distance() -> None:
    """Its first rows: 1 2 3 5 8 13, 4 7 11 18, 6 10 16 26, 9 15 24 39 (OEIS A035513)."""
    masks = kinds.fibonacci(20, 4)
    assert masks[:, 0].all(), "[CLS] attends to all"
    assert masks[:, :, 0].all(), "all attend to [CLS]"
    distances = [{abs(i - j) for i, j in np.argwhere(mask) if i and j} for mask in masks]
    assert distances == [{1, 2, 3, 5, 8, 13}, {4, 7, 11, 18}, {6, 10, 16}, {9, 15}]
    assert (masks == masks.transpose(0, 2, 1)).all()


RANDOM = np.random.default_rng(0)


def average(special: tuple[int, ...]) -> Averages:
    counts = RANDOM.integers(0, 4, (8, 8)).astype(float)
    return Averages(RANDOM.random((2, 3, 8, 8)), counts, special)


def test_low_rank_is_exact_where_the_rank_is() -> None:
    column = np.array([1.0, 2, 3, 4])
    row = np.array([0.1, 0.2, 0.3, 0.4])
    exact = np.outer(column, row)[None, None]
    averages = Averages(exact, np.ones((4, 4)), (0, 3))
    assert low_rank(averages, 1) == pytest.approx(exact, abs=1e-12)
    peaked = exact.copy()
    peaked[0, 0, 0, 1] += 5
    averages = Averages(peaked, np.ones((4, 4)), (0, 3))
    assert np.abs(low_rank(averages, 1) - peaked).max() > 0.1, "negative control"
    assert low_rank(averages, 2) == pytest.approx(peaked, abs=1e-12)
    assert low_rank(averages, 1, largest=1)[0, 0, 0, 1] == peaked[0, 0, 0, 1]
    assert low_rank(averages, 1, largest=16) == pytest.approx(peaked, abs=0)


@pytest.mark.parametrize("special", [(0, 7), (0, 4, 7)])
def test_relative_is_the_mean_over_all_pairs_at_a_distance(special: tuple[int, ...]) -> None:
    averages = average(special)
    relative_matrices = relative(averages)
    middle = special[1] if len(special) > 2 else 8

    def class_of(i: int, j: int) -> tuple[Any, ...]:
        if i in special or j in special:
            return tuple(slot if slot in special else "text" for slot in (i, j))
        return i - j, (i > middle, j > middle) if i - j and (i > middle) != (j > middle) else "one"

    for i, j in np.ndindex(8, 8):
        pairs = [pair for pair in np.ndindex(8, 8) if class_of(*pair) == class_of(i, j)]
        count = sum(averages.counts[pair] for pair in pairs)
        total = sum(averages.counts[pair] * averages.matrices[:, :, *pair] for pair in pairs)
        assert relative_matrices[:, :, i, j] == pytest.approx(total / max(count, 1)), (i, j)
    assert np.abs(relative_matrices - averages.matrices).max() > 0.1, "negative control"


def test_rows_are_divided_by_their_absolute_sums_over_real_tokens() -> None:
    matrices = torch.tensor([[[1.0, -3.0], [0.0, 0.0]]])
    value = torch.tensor([[[[2.0], [4.0]]]])
    for real, expected in ((None, -2.5), ([[True, True]], -2.5), ([[True, False]], 2.0)):
        mask = None if real is None else torch.tensor(real)
        assert constant_product(matrices, value, mask).flatten().tolist() == [expected, 0.0]
