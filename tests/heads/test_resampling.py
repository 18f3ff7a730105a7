"""Which text's outputs a head takes when outputs are resampled."""

import pytest
import torch

from papa.heads.resampling import Donor, DrawnOutputs


@pytest.mark.parametrize(
    ("tokens", "expected"), [(2, "short"), (3, "short"), (4, "long"), (6, "long")]
)
def test_the_donor_is_the_shortest_long_enough_else_the_longest(tokens: int, expected: str) -> None:
    """Of two donors, of three and of six tokens: for four tokens, the nearer one is too short."""
    donors = {
        length: [Donor(b"", text, torch.arange(length), [torch.zeros(1, length, 1)])]
        for text, length in ((b"short", 3), (b"long", 6))
    }
    resampled = DrawnOutputs(seed=0, donors=donors).substitute()
    assert resampled.texts[tokens] == expected.encode()
