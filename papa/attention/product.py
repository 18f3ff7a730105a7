"""Products of constant matrices with values, masked and row-normalised without a matrix for each
input.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def at_slots(
    matrices: Float[Tensor, "heads slots slots"],
    chosen: Int[Tensor, " chosen"],
    slots: Int[Tensor, " m"],
) -> Float[Tensor, "chosen m m"]:
    """C of the chosen heads at the batch's slots; a flat look-up is ten times faster."""
    if torch.compiler.is_exporting():
        # A graph that is written out takes inputs of any length: nothing may depend on m.
        return matrices.index_select(0, chosen).index_select(1, slots).index_select(2, slots)
    size, m = matrices.shape[-1], len(slots)
    if m == size:
        return matrices.index_select(0, chosen)
    pairs = (slots[:, None] * size + slots).flatten()
    entries = (chosen[:, None] * (size * size) + pairs).flatten()
    return matrices.flatten().index_select(0, entries).view(-1, m, m)


def constant_product(
    matrices: Float[Tensor, "heads m m"],
    value: Float[Tensor, "batch heads m width"],
    attention_mask: Bool[Tensor, "batch m"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads m width"]:
    """What constant heads put out (paper, Section 3.1).

    It is the rows of C on real slots, divided by their sums, times V; a row that sums to 0 puts out
    0. Sums are of absolute values, which matters only to trained matrices, whose entries may be
    negative. With dropout of entries each input needs matrices of its own.
    """
    if dropout > 0:
        rows = F.dropout(normalised_rows(matrices, attention_mask), dropout)
        return torch.matmul(rows, value)
    batch, heads, m, width = value.shape
    if not torch.compiler.is_exporting() and bool(attention_mask.all()):
        # Without padding every input divides by the same sums: rows are normalised once a batch.
        sums = matrices.abs().sum(dim=-1, keepdim=True)
        rows = matrices / torch.where(sums == 0, 1.0, sums)
        mixed = torch.bmm(rows, value.permute(1, 2, 0, 3).reshape(heads, m, batch * width))
        return mixed.view(heads, m, batch, width).permute(2, 0, 1, 3)
    return masked_product(matrices, value, attention_mask)


def masked_product(
    matrices: Float[Tensor, "heads m keys"],
    value: Float[Tensor, "batch heads keys width"],
    attention_mask: Bool[Tensor, "batch keys"],
) -> Float[Tensor, "batch heads m width"]:
    """``constant_product`` in fixed steps, whatever the mask."""
    batch, heads, keys, width = value.shape
    real = attention_mask.to(value.dtype)
    # Values of padding are cleared instead of columns of C, so that one product serves all inputs.
    masked = (value * real[:, None, :, None]).permute(1, 2, 0, 3)
    flat = masked.reshape(heads, keys, batch * width)
    mixed = torch.bmm(matrices, flat).view(heads, -1, batch, width)
    sums = torch.matmul(matrices.abs(), real.T)[..., None]
    mixed = mixed / torch.where(sums == 0, 1.0, sums)
    return mixed.permute(2, 0, 1, 3)


def normalised_rows(
    matrices: Float[Tensor, "heads m m"], attention_mask: Bool[Tensor, "batch m"]
) -> Float[Tensor, "batch heads m m"]:
    """C as every input sees it: masked by its keys, rows divided by their sums. Only dropout needs
    it written out.
    """
    masked = matrices * attention_mask[:, None, None, :]
    sums = masked.abs().sum(dim=-1, keepdim=True)
    return masked / torch.where(sums == 0, 1.0, sums)
