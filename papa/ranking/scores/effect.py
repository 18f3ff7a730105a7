"""Effect: what is lost where one head alone is constant."""

from __future__ import annotations

import numpy as np

from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.value import frozen_value


def score(asked: Asked) -> Scored:
    """v(all) - v(all without the head) of ``frozen_value``, in units of the loss (after Michel et
    al., 2019, Section 3.2): 0 for a head that is as good constant, below where it is better.
    """
    value = frozen_value(asked)
    heads, everyone = value.heads, frozenset(value.heads)
    whole, lost = value(everyone), dict.fromkeys(heads, 0.0)
    # From the last layer down: what is known of the layers below stays of use.
    for done, head in enumerate(reversed(heads), 1):
        lost[head] = whole - value(everyone - {head})
        asked.progress(done, len(heads))
    values = np.array([lost[head] for head in heads])
    return Scored(
        values.reshape(asked.encoder.layers, asked.encoder.heads), None, value.evaluations
    )
