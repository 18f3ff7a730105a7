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
    real: Bool[Tensor, "batch m"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads m width"]:
    """What constant heads put out (paper, Section 3.1); ``real`` is None where every input has a
    token in every column.

    It is the rows of C on real slots, divided by their sums, times V; a row that sums to 0 puts out
    0. Sums are of absolute values, which matters only to trained matrices, whose entries may be
    negative. With dropout of entries each input needs matrices of its own.
    """
    if dropout > 0:
        rows = matrices if real is None else matrices * real[:, None, None, :]
        return torch.matmul(F.dropout(normalised(rows), dropout), value)
    batch, heads, m, width = value.shape
    if real is None:
        # Every input divides by the same sums: rows are normalised once a batch.
        flat = value.permute(1, 2, 0, 3).reshape(heads, m, batch * width)
        return (
            torch.bmm(normalised(matrices), flat).view(heads, m, batch, width).permute(2, 0, 1, 3)
        )
    # Values of padding are cleared instead of columns of C, so that one product serves all inputs.
    masked = (value * real[:, None, :, None]).permute(1, 2, 0, 3)
    flat = masked.reshape(heads, m, batch * width)
    mixed = torch.bmm(matrices, flat).view(heads, m, batch, width)
    # Autocast would sum in half precision.
    with torch.autocast(value.device.type, enabled=False):
        sums = torch.matmul(matrices.abs(), real.T.to(matrices.dtype))[..., None]
    return (mixed / torch.where(sums == 0, 1.0, sums)).permute(2, 0, 1, 3)


def normalised(rows: Float[Tensor, "*any keys"]) -> Float[Tensor, "*any keys"]:
    """Rows divided by their sums; a row of zeros stays."""
    sums = rows.abs().sum(dim=-1, keepdim=True)
    return rows / torch.where(sums == 0, 1.0, sums)
