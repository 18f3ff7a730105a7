"""Distance of outputs: how much of what a head adds to its layer depends on the input."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.ranking.scores.streamed import Rows


def of_rows(rows: Rows) -> tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]:
    """‖(A - C)·V·W_O‖ over ‖A·V·W_O‖, norms over an input's tokens and the width: 0 for a head that
    is constant already, and for one that puts out nothing. An input has one number, in its first
    row.
    """
    own, apart = (
        torch.where(rows.real[:, None, :, None], mixed @ rows.value @ rows.output_map, 0)
        for mixed in (rows.attention, rows.attention - rows.constant)
    )
    norm = own.norm(dim=(-1, -2))
    relative = torch.where(norm > 0, apart.norm(dim=(-1, -2)) / norm, 0)
    first = rows.real & (rows.real.cumsum(-1) == 1)
    return relative[..., None].expand(own.shape[:-1]), first
