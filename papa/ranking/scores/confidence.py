"""Confidence: how much a head gives the one token that it looks at most."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from papa.ranking.scores.streamed import Rows


def of_rows(rows: Rows) -> tuple[Float[Tensor, "batch heads m"], Bool[Tensor, "batch m"]]:
    """The largest weight of each row (Voita et al., 2019, Section 4): separators are no real
    tokens, and neither they nor what looks at them counts.
    """
    looked_at = rows.attention.masked_fill(rows.ends[:, None, None, :], 0)
    return looked_at.amax(-1), rows.real & ~rows.ends
