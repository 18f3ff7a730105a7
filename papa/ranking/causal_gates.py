"""The scores of causal gates, and the role of each head that follows from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas
from jaxtyping import Bool, Float

from papa.ranking.head_scores import HeadScores


class CausalGateScores(HeadScores):
    """Causal gates (Nam et al., 2025): G⁻ is the score.

    A head is facilitating by G⁻, interfering by 1 - G⁺, and irrelevant by G⁺(1 - G⁻): the largest
    names its role. A head whose gates still moved at the end of a run has none.

    Args:
        pulled_closed: G⁻ of each seed.
        pulled_open: G⁺, the mean over seeds.
        settled: Whether gates no longer moved, of all seeds.
    """

    def __init__(
        self,
        pulled_closed: Float[np.ndarray, "seeds layers heads"],
        pulled_open: Float[np.ndarray, "layers heads"],
        settled: Bool[np.ndarray, "layers heads"],
        evaluations: int = 0,
        has_interval: bool = True,
    ) -> None:
        super().__init__(pulled_closed, evaluations=evaluations, has_interval=has_interval)
        self.pulled_open = pulled_open
        self.settled = settled

    @classmethod
    def from_seeds(
        cls, scores: Sequence[HeadScores], has_interval: bool = True
    ) -> CausalGateScores:
        """Return the scores of all seeds, from those of each."""
        gates = [seed_gates for seed_gates in scores if isinstance(seed_gates, CausalGateScores)]
        return cls(
            np.concatenate([seed_gates.by_seed for seed_gates in gates]),
            np.mean([seed_gates.pulled_open for seed_gates in gates], axis=0),
            np.all([seed_gates.settled for seed_gates in gates], axis=0),
            has_interval=has_interval,
        )

    def frame(self, method: str) -> pandas.DataFrame:
        """Return a frame as of other scores, with the shares of the three roles, and ``role``."""
        frame = super().frame(method)
        plus = self.pulled_open.ravel()
        minus = frame["score"]
        roles = {"facilitating": minus, "interfering": 1 - plus, "irrelevant": plus * (1 - minus)}
        largest = pandas.DataFrame(roles).idxmax(axis=1)
        return frame.assign(**roles, role=largest.where(self.settled.ravel(), None))
