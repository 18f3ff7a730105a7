"""Averages against exact rational sums, however inputs are grouped into batches and shards."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from papa.heads.average import GRID, AttentionAverager, AttentionSums
from papa.models.layer import Heads, LayerAttention

LAYERS, HEADS, SLOTS, INPUTS = 2, 2, 6, 600
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
            given, slots = probabilities[chosen, layer], torch.arange(SLOTS)[None]
            real, ends = mask[chosen], slots[:, -1:, None]
            of_batch = given, given, given, None, 1, slots, slots, real, real.sum(1), ends
            averager.see(Given(*of_batch), layer)
    return averager.result()


def merged(parts: list[AttentionSums]) -> AttentionSums:
    whole = AttentionSums(torch.zeros_like(parts[0].sums), torch.zeros_like(parts[0].counts))
    for part in parts:
        whole.merge(part)
    return whole


def exact(probabilities: Tensor, mask: Tensor) -> list[Fraction]:
    """Σ A / count of every entry, without rounding; 0 where no input has both slots."""
    both = mask[:, None, None, :, None] & mask[:, None, None, None, :]
    counts = both.sum(0).expand(LAYERS, HEADS, SLOTS, SLOTS).flatten().tolist()
    columns = probabilities.where(both, torch.tensor(0.0)).flatten(1).T.tolist()
    return [
        sum(map(Fraction, values), start=Fraction()) / max(count, 1)
        for values, count in zip(columns, counts, strict=True)
    ]


@pytest.mark.parametrize("batch", [1, 8])
def test_an_average_is_the_exact_one_within_its_bound(
    inputs: tuple[Tensor, Tensor], batch: int
) -> None:
    """A batch of b inputs is added up in float32, (b - 1) · 2⁻²⁴ of it at most, and rounded to the
    grid, 2⁻³³; both are shared by all inputs that have the entry. The average itself is float32.
    """
    sums = summed(*inputs, np.arange(INPUTS), batch)
    counts = sums.counts.expand(LAYERS, HEADS, SLOTS, SLOTS).flatten().tolist()
    found = sums.average().matrices.flatten().tolist()
    of_grid, apart = Fraction(INPUTS // batch, int(2 * GRID)), []
    for value, total, expected, count in zip(
        found, sums.sums.flatten().tolist(), exact(*inputs), counts, strict=True
    ):
        n = int(max(count, 1))
        bound = expected * (batch - 1) * UNIT + of_grid / n
        assert abs(Fraction(total) / n - expected) <= bound
        assert abs(Fraction(value) - expected) <= bound + UNIT * expected
        assert (Fraction(total) * int(GRID)).denominator == 1
        apart.append(abs(Fraction(total) / n - expected))
    assert max(apart) > 0, "sums on a grid are not the exact ones"


@pytest.mark.parametrize("seed", range(2))
def test_shards_in_any_grouping_and_order_give_the_same_bits(
    inputs: tuple[Tensor, Tensor], seed: int
) -> None:
    batch, random = 4, np.random.default_rng(seed)
    whole = summed(*inputs, np.arange(INPUTS), batch)
    batches = random.permutation(np.arange(INPUTS).reshape(-1, batch))
    ends = np.sort(random.choice(np.arange(1, len(batches)), 20, replace=False))
    shards = np.split(batches, ends)
    parts = [summed(*inputs, shard.flatten(), batch) for shard in shards]
    random.shuffle(parts)  # type: ignore[arg-type]
    middle = len(parts) // 2
    for found in (merged(parts), merged([merged(parts[:middle]), merged(parts[middle:])])):
        assert torch.equal(found.sums, whole.sums)
        assert torch.equal(found.counts, whole.counts)
        assert torch.equal(found.average().matrices, whole.average().matrices)
