"""The scores of causal gates, and the role of each head that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from jaxtyping import Bool

from papa.ranking.head_scores import HeadArray, HeadScores


@dataclass(eq=False, kw_only=True)
class CausalGateScores(HeadScores):
    """Causal gates (Nam et al., 2025): G⁻, of gates pulled closed, is the score.

    A head is facilitating by G⁻, interfering by 1 - G⁺, and irrelevant by G⁺(1 - G⁻): the largest
    names its role. A head whose gates still moved at the end of a run has none.

    Attributes:
        pulled_open: G⁺, the mean over seeds.
        settled: Whether gates no longer moved, of all seeds.
    """

    pulled_open: HeadArray
    settled: Bool[np.ndarray, "layers heads"]

    @classmethod
    def from_seeds(
        cls, scores: Sequence[HeadScores], has_interval: bool = True
    ) -> CausalGateScores:
        """Return the scores of all seeds, from those of each."""
        gates = [seed_gates for seed_gates in scores if isinstance(seed_gates, CausalGateScores)]
        return cls(
            np.concatenate([seed_gates.by_seed for seed_gates in gates]),
            pulled_open=np.mean([seed_gates.pulled_open for seed_gates in gates], axis=0),
            settled=np.all([seed_gates.settled for seed_gates in gates], axis=0),
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
