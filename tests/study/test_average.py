"""Average attention, summed shard by shard."""

from __future__ import annotations

from pathlib import Path

import torch

from papa.attention.average import AttentionSums
from papa.attention.constants import ConstantMatrices
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.study.run import run_step
from papa.study.stages.average import average, sum_shards
from tests.study.minilm import encoder, here, reviews, with_inputs

ROWS = 16


def test_shards_in_any_order_and_grouping_give_the_same_bits(tmp_path: Path) -> None:
    step = average("average", encoder(), reviews(train_rows=8 * ROWS), 32)
    store = with_inputs(step, tmp_path / "store", shard_rows=ROWS)
    session = here(store)
    run_step(step, session, ignore_progress)
    found = ConstantMatrices.load(Path(step.folder(store)))
    assert float(found.matrices.std()) > 1e-3
    asked = {"step": step, "store": store, "execution": ExecutionSpec()}
    parts = [
        session.pool.run(sum_shards, encoder=encoder(), arguments={**asked, "shards": [shard]})
        for shard in reversed(range(8))
    ]
    sums, counts = (torch.tensor(sum(part[number] for part in parts)) for number in (0, 1))
    alone = AttentionSums(sums, counts).average()
    assert torch.equal(found.matrices, alone.matrices)
    assert torch.equal(found.seen, alone.seen)
    without_one = sums - torch.tensor(parts[0][0]), counts - torch.tensor(parts[0][1])
    assert not torch.equal(found.matrices, AttentionSums(*without_one).average().matrices)
