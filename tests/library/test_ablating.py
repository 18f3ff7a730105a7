"""The forms in which a user may name heads."""

import pytest
import torch

from papa.library.ablating import Heads, parse_heads

MASK = torch.ones(2, 4)
MASK[0, [1, 2]] = 0


@pytest.mark.parametrize("heads", [[(0, 2), (0, 1)], {0: [1, 2]}, MASK, MASK.numpy()])
def test_pairs_a_mapping_and_a_mask_name_the_same_heads(heads: Heads) -> None:
    assert list(parse_heads(heads, [4, 4])) == [(0, 1), (0, 2)]
