"""Distance to constant: how much of a head's attention depends on the input."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.ranking.scores.streamed import Rows


def of_rows(rows: Rows) -> tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]:
    """The Jensen-Shannon divergence of each row of A from that of C, in nats: 0 to log 2."""
    own, constant = rows.attention.double(), rows.constant.double()
    middle = (own + constant) / 2
    apart = [torch.xlogy(rows, rows) - torch.xlogy(rows, middle) for rows in (own, constant)]
    return torch.stack(apart).sum((0, -1)) / 2, rows.real
