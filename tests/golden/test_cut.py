"""The cut of the golden tensors is a part of the full ones."""

from __future__ import annotations

import pytest
import torch

from tests.golden.cut import TEXTS
from tests.golden.tensors import COMPUTED, CUT_FOLDER, full_folder, load_golden


def test_the_cut_says_what_the_full_tensors_say() -> None:
    if not (full_folder() / COMPUTED).is_file():
        pytest.skip(f"the full golden tensors are not at {full_folder()}")
    full = load_golden(full_folder())
    cut = load_golden(CUT_FOLDER)
    assert cut.order == full.order
    assert cut.tensors.keys() == full.tensors.keys()
    real_slots = full.tensors["attention_mask"][TEXTS].bool()
    for name, tensor in cut.tensors.items():
        expected = full.tensors[name]
        if len(expected) == 8:
            expected = expected[TEXTS]
        if name.startswith("last_hidden_state"):
            # What the authors' code computes for padding is stored in the full file alone.
            assert torch.equal(tensor[real_slots], expected[real_slots]), name
        else:
            assert torch.equal(tensor.to(expected.dtype), expected), name
