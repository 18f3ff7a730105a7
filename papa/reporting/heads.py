"""Heads: a map of their scores, and what their average attention looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.patterns import HeadPatterns, head_patterns
from papa.ranking.orders import HEAD_SCORES
from papa.reporting.drawing import Figure, Spec
from papa.reporting.figures import TOLD, figure, mark, number
from papa.reporting.written import WrittenTable
from papa.spec.orders import Head


@dataclass(frozen=True, eq=False)
class Average:
    """The average attention of one encoder's heads on one task, not normalised.

    Attributes:
        counts: inputs with tokens at both slots; or whether any had.
        special: the slot of [CLS], then those of [SEP].
    """

    encoder: str
    task: str
    matrices: Float[Tensor, "layers heads slots slots"]
    counts: Float[Tensor, "slots slots"] | Bool[Tensor, "slots slots"]
    special: tuple[int, ...]

    @property
    def patterns(self) -> HeadPatterns:
        """What the matrices look like (paper, Section 5.1)."""
        return head_patterns(self.matrices, self.counts, self.special)


def head_panels(heads: pandas.DataFrame) -> list[Figure]:
    """A map for each score of one encoder on one task, layer by head: a dot where the 95 % interval
    leaves out where the score says nothing, and the colour of the interval's nearer end; where no
    such place is known, the colour of the score.
    """
    panels = []
    for (encoder, task, method), own in heads.groupby(["encoder", "task", "method"], sort=False):
        label = {"lambda": "λ"}.get(method) or getattr(HEAD_SCORES.get(method), "label", method)
        scale: Spec = {"scheme": "cividis"}
        layers: list[Spec] = []
        nothing = 0.5 if method == "lambda" else getattr(HEAD_SCORES.get(method), "nothing", np.nan)
        nearer, text = np.clip(nothing, own["low"], own["high"]), [f"Colour: {label} itself."]
        if nearer.isna().any():
            nearer = own["score"]
        else:
            far = float((nearer - nothing).abs().max()) or 1.0
            # White stays white in both themes; the ends are told apart by colour-blind readers.
            colours = ["#b35806", "#f7f7f7", "#2166ac"]
            scale = {"domain": [nothing - far, nothing, nothing + far], "range": colours}
            text = [
                f"Dot, colour: the 95 % interval leaves {nothing:g} out.",
                f"{(nearer != nothing).sum()} of {len(own)} heads; by chance about "
                f"{0.05 * len(own):.2g} would.",
            ]
            dot = {"size": 9, "color": "#1d2733", "opacity": 1}
            layers = [mark("circle", {}, where=f"datum.nearer !== {nothing}", **dot)]
        colour = {"color": number("nearer", label, scale=scale)}
        place = {"x": ("head", "width"), "y": ("layer", "height")}
        body = {
            **{side: {"step": 24} for _, side in place.values()},
            "title": {"text": text, "fontSize": 11, "fontWeight": "normal"},
            "encoding": {axis: {"field": of, "type": "ordinal"} for axis, (of, _) in place.items()},
            "layer": [mark("rect", colour, stroke="#8a94a0", strokeWidth=0.5, **TOLD), *layers],
        }
        name, equal = f"{label} · {encoder} · {task}", {"encoder": encoder, "task": task}
        data = own.assign(nearer=nearer)
        panels.append(figure(f"heads-{name}", name, "heads", data, body, **equal, method=method))
    return panels


def pattern(patterns: HeadPatterns, at: Head) -> str:
    """The pattern of a head in words, such as ``diagonal +1, concentrated``."""
    on_cls = patterns.cls_mass[at] > patterns.sep_mass[at]
    offset = int(patterns.offset[at])
    found = {
        f"diagonal {offset:+d}" if offset else "diagonal": patterns.diagonal[at],
        "on [CLS]" if on_cls else "on [SEP]": patterns.special[at],
        "concentrated": patterns.concentrated[at],
    }
    return ", ".join(name for name, holds in found.items() if holds) or "no pattern"


def pattern_table(averages: Sequence[Average]) -> WrittenTable:
    """How many heads of each encoder and task show a pattern."""
    rows = (
        {"Encoder": one.encoder, "Task": one.task}
        | {name: f"{share:.3f}" for name, share in one.patterns.summary().items()}
        for one in averages
    )
    note = "Shares of heads, and mean weights (paper, Section 5.1; docs/method.md defines them)."
    return WrittenTable.of("Patterns", rows, note)
