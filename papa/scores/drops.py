"""The largest drop that a score may have: a share of it, or nats of a loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from papa.errors import SpecError
from papa.spec.task import LOSS

_NATS = "nats"


@dataclass(frozen=True)
class MaxDrop:
    """The largest drop that is allowed; None where no limit in that unit was set.

    Attributes:
        share: of the original score.
        nats: of a loss; 0.01 nats are 1 % of perplexity.
    """

    share: float | None = 0.01
    nats: float | None = 0.01

    @classmethod
    def parse(cls, value: str | float | None, name: str) -> MaxDrop:
        """Read ``1%``, ``0.01`` or ``0.05nats``; None gives both defaults. Raises a SpecError that
        names the option where it is no such limit.
        """
        if value is None:
            return cls()
        text = str(value).strip()
        amount = _number(text.removesuffix(_NATS).removesuffix("%"))
        if text.endswith(_NATS) and 0 <= amount < math.inf:
            return cls(share=None, nats=amount)
        share = amount / (100 if text.endswith("%") else 1)
        if not 0 <= share < 1:
            raise SpecError(
                f"{name} {value} is not a drop: give a percentage such as 1%, a share below 1 "
                "such as 0.01, or for a loss nats such as 0.05nats"
            )
        return cls(share=share, nats=None)

    def limit(self, metric: str) -> float | None:
        """Return the limit in the unit of drops of this metric."""
        return self.nats if metric == LOSS else self.share

    def label(self, metric: str) -> str:
        """Return the limit in words: ``a drop of 1 %``."""
        limit = self.limit(metric) or 0.0
        if metric == LOSS:
            return f"a drop of {limit:g} nats (perplexity × {perplexity_ratio(limit):.3g})"
        return f"a drop of {100 * limit:g} %"

    def mismatch(self, metric: str) -> str:
        """Return why this limit does not apply to a metric; "" if it does."""
        if self.limit(metric) is not None:
            return ""
        if metric == LOSS:
            share = f"{100 * (self.share or 0.0):g} %"
            return f"a drop of {share} means nothing for a loss: give nats, such as 0.05nats"
        return f"a drop of {self.nats:g} nats applies to losses only: give a percentage, such as 1%"


def perplexity_ratio(nats: float) -> float:
    """Return by what factor the perplexity grows when the loss grows by ``nats``."""
    # The exponential of more overflows a float.
    return math.exp(min(nats, 700.0))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
