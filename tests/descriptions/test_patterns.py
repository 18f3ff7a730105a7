"""What constant matrices look like, on matrices whose look is known."""

import pytest
import torch

from papa.descriptions.patterns import head_patterns
from papa.heads.constants import control
from papa.text.layout import special_slots

SLOTS = 64
SPECIAL = special_slots("text", SLOTS)
SEEN = torch.ones(SLOTS, SLOTS, dtype=torch.bool)


@pytest.mark.parametrize(
    ("matrices", "diagonal", "concentrated"),
    [
        (control("identity", 2, 3, SLOTS).matrices, 1, 1),
        (torch.full((1, 1, SLOTS, SLOTS), 1 / SLOTS), 0, 0),
        (control("toeplitz", 1, 1, SLOTS).matrices, 1, 0),
        (control("zeros", 1, 2, SLOTS).matrices, 0, 0),
    ],
    ids=["identity", "uniform", "toeplitz", "pruned"],
)
def test_patterns_of_controls(matrices: torch.Tensor, diagonal: float, concentrated: float) -> None:
    summary = head_patterns(matrices, SEEN, SPECIAL).summary()
    counts = [summary[f"{pattern} heads"] for pattern in ("diagonal", "concentrated", "special")]
    assert counts == [diagonal, concentrated, 0]
    rows = matrices.sum(dim=-1, keepdim=True)
    largest = (matrices / rows.where(rows > 0, 1)).amax(dim=-1)[..., 1:-1].mean()
    assert summary["largest entry"] == pytest.approx(float(largest))


@pytest.mark.parametrize("offset", [-3, -1, 1, 2])
def test_an_offset_diagonal_is_found_at_its_offset(offset: int) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(1, 1, SLOTS, SLOTS, generator=generator) * 0.002
    matrix = noise + 0.6 * torch.diag_embed(torch.ones(SLOTS - abs(offset)), offset)
    patterns = head_patterns(matrix, SEEN, SPECIAL)
    assert patterns.offset.item() == offset
    assert patterns.diagonal.all()


def test_a_faint_diagonal_beside_a_separator_is_special() -> None:
    matrix = 0.02 * torch.eye(SLOTS)[None, None]
    matrix[..., -1] = 0.98
    patterns = head_patterns(matrix, SEEN, SPECIAL)
    assert patterns.special.all()
    assert patterns.offset.item() == 0
    assert not patterns.diagonal.any()
    assert patterns.sep_mass.item() == pytest.approx(0.98)
    assert patterns.cls_mass.item() == 0


def test_rows_count_as_often_as_they_were_seen() -> None:
    """Slots 1 to 10, in 1,000 inputs each, are diagonal; 11 to 62, in 10 each, attend to [CLS]."""
    matrix = torch.zeros(1, 1, SLOTS, SLOTS)
    matrix[..., 0] = 1.0
    matrix[0, 0, 1:11] = torch.eye(SLOTS)[1:11]
    counts = torch.full((SLOTS, SLOTS), 10)
    counts[:11, :11] = 1000
    patterns = head_patterns(matrix, counts, SPECIAL)
    assert patterns.cls_mass.item() == pytest.approx(52 * 10 / (52 * 10 + 10 * 1000))
    assert patterns.diagonal.all()
    assert not head_patterns(matrix, SEEN, SPECIAL).diagonal.any()


def test_entries_never_seen_do_not_matter() -> None:
    visible = SEEN.clone()
    visible[1:-1, 40:-1] = False
    visible[40:-1, :] = False
    matrices = control("toeplitz", 1, 1, SLOTS).matrices
    changed = matrices.clone()
    changed[..., ~visible] = 7.0
    first = head_patterns(matrices, visible, SPECIAL)
    second = head_patterns(changed, visible, SPECIAL)
    assert first.summary() == second.summary()
    assert first.summary() != head_patterns(matrices, SEEN, SPECIAL).summary()
