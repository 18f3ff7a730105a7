"""Heads that do nothing: they look at separators and add little."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd
import torch
from torch import Tensor

from papa.descriptions.seen import ATTENTIONS, Seen


class Separators:
    """A row for each head (Bondarenko et al., 2023, Section 3).

    ``separator_mass`` is the attention that tokens put on separators, 0 to 1; ``update`` the norm
    of what the head puts out for a token, before the layer's output map. Both are means over
    tokens.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.tokens: dict[str, int] = defaultdict(int)

    def see(self, seen: Seen) -> None:
        mass = seen.attention[..., seen.separators].sum(dim=-1)
        found = torch.stack([mass, seen.output.norm(dim=-1)]).double().sum(dim=-1)
        self.sums[seen.of] = self.sums.get(seen.of, 0) + found
        self.tokens[seen.of] += len(seen.separators)

    def frame(self) -> pd.DataFrame:
        parts = []
        for of in ATTENTIONS:
            mass, update = self.sums[of] / self.tokens[of]
            layers, heads = mass.shape
            parts.append(
                pd.DataFrame(
                    {
                        "attention": of,
                        "layer": torch.arange(layers).repeat_interleave(heads),
                        "head": torch.arange(heads).repeat(layers),
                        "separator_mass": mass.flatten(),
                        "update": update.flatten(),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)
