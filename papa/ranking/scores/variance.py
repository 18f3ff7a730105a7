"""Variance: how far from one another the tokens are that a head looks at."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from papa.ranking.scores.streamed import Rows


def of_rows(rows: Rows) -> tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]:
    """-Σ_j A_ij (μ_i - j)² with μ_i = Σ_j j A_ij (Kim et al., Findings of ACL 2021): 0 for a head
    that looks at one token, less for one that looks far around. j counts the tokens of the input.
    """
    places = (rows.real.cumsum(-1) - 1).to(rows.attention)[:, None, None]
    mean = (rows.attention * places).sum(-1, keepdim=True)
    return -(rows.attention * (mean - places).square()).sum(-1), rows.real
