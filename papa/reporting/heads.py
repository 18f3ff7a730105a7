"""Heads: a map of their scores, and their average attention: what it looks like, as a page holds
it, one byte an entry, and that of chosen heads drawn.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.descriptions.patterns import HeadPatterns, head_patterns
from papa.ranking.orders import HEAD_SCORES
from papa.reporting.figures import TOLD, Figure, Spec, figure, mark, number
from papa.reporting.wording import WrittenTable
from papa.spec.orders import Head

MOST_ENTRIES = 2_400_000
"""Of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5 MB."""
MOST_ROWS = 160
"""Of one matrix: more are not told apart on a screen."""
_DRAWN_ROWS = 64
"""Of a matrix in a file, where each entry is a rectangle."""
UNSEEN, TOP = 255, 254
"""The levels of an entry that the average never saw, and of a matrix's largest."""


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
    offset = int(patterns.offset[at])
    on_cls = patterns.cls_mass[at] > patterns.sep_mass[at]
    found = {
        f"diagonal {offset:+d}" if offset else "diagonal": patterns.diagonal[at],
        "on [CLS]" if on_cls else "on [SEP]": patterns.special[at],
        "concentrated": patterns.concentrated[at],
    }
    return ", ".join(name for name, holds in found.items() if holds) or "no pattern"


def pattern_table(averages: Sequence[Average]) -> WrittenTable:
    """How many heads of each encoder and task show a pattern."""
    rows = [
        {"Encoder": one.encoder, "Task": one.task}
        | {name: f"{share:.3f}" for name, share in one.patterns.summary().items()}
        for one in averages
    ]
    note = "Shares of heads, and mean weights (paper, Section 5.1; docs/method.md defines them)."
    return WrittenTable("Patterns", rows, note)


def matrix(labels: Sequence[str]) -> Spec:
    """One matrix of the frame ``entries``: from, to, weight; ``labels`` are the slots' names."""
    every = max(1, len(labels) // 8)
    named = [name for at, name in enumerate(labels) if not name.isdigit() or at % every == 0]
    axis = {"values": named, "labelOverlap": "greedy"}
    place = {"type": "ordinal", "sort": list(labels), "axis": axis}
    colour = {"field": "weight", "type": "quantitative", "title": "mean attention"}
    encoding = {
        "x": {"field": "to", "title": "slot attended to", **place},
        "y": {"field": "from", "title": "slot that attends", **place},
        "color": {**colour, "scale": {"type": "sqrt", "scheme": "cividis"}},
    }
    mark = {"type": "rect", "tooltip": {"content": "data"}}
    return {"width": 200, "height": 200, "mark": mark, "encoding": encoding}


def paged(averages: Sequence[Average]) -> list[dict[str, Any]]:
    """The matrices of all encoders and tasks for a page: ``labels`` of rows, ``largest`` entries
    and ``levels``, uint8 [layers, heads, rows, rows] in base64. An entry is
    ``largest · (level / TOP)²``: the root keeps faint diagonals apart, and the error stays below
    0.4 % of the largest.

    Where they are too many for one page, a row stands for several slots.
    """
    heads = sum(one.matrices.shape[:2].numel() for one in averages)
    return [_levels(one, min(MOST_ROWS, math.isqrt(MOST_ENTRIES // heads))) for one in averages]


def chosen_figure(average: Average) -> Figure:
    """The heads that show a pattern most, where one does: diagonal, [CLS], [SEP], and the least
    concentrated (paper, Figure 4).
    """
    patterns = average.patterns
    strengths = {
        "diagonal": patterns.diagonal_mass,
        "[CLS]": patterns.cls_mass,
        "[SEP]": patterns.sep_mass,
        "spread": -patterns.largest_entry,
    }
    chosen: dict[Head, str] = {}
    for name, strength in strengths.items():
        at = divmod(int(strength.argmax()), strength.shape[1])
        if name == "spread" or name in pattern(patterns, at):
            chosen.setdefault(at, name)
    return heads_figure(average, chosen)


def heads_figure(average: Average, chosen: Mapping[Head, str]) -> Figure:
    """Some heads, each called something, on one colour scale."""
    _, labels, means = _means(average, _DRAWN_ROWS)
    frames = [
        pandas.DataFrame(means[at].numpy(), index=labels, columns=labels)
        .rename_axis("from")
        .melt(var_name="to", value_name="weight", ignore_index=False)
        .reset_index()
        .assign(head=f"{name}: layer {at[0]}, head {at[1]}")
        for at, name in chosen.items()
    ]
    facet = {"field": "head", "type": "nominal", "title": None, "sort": None}
    body = {"facet": facet, "columns": 4, "spec": matrix(labels)}
    title = "Constant matrices of chosen heads."
    return figure("matrices", title, "entries", pandas.concat(frames), body)


def _means(
    average: Average, most: int
) -> tuple[list[int], list[str], Float[Tensor, "layers heads rows rows"]]:
    """The first slot and the name of each row, and the mean of the entries seen, nan where none
    was: of seen slots, so many neighbours together that there are about ``most`` rows; [CLS] and
    [SEP] keep rows of their own.
    """
    seen = average.counts > 0
    slots = (seen.any(dim=0) | seen.any(dim=1)).nonzero().flatten().tolist()
    width, rows = math.ceil(len(slots) / most), list[list[int]]()
    for slot in slots:
        row = rows[-1] if rows else [-2]
        if slot == row[-1] + 1 and len(row) < width and not {slot, row[0]} & {*average.special}:
            row.append(slot)
        else:
            rows.append([slot])
    groups = torch.zeros(len(rows), len(seen))
    for at, row in enumerate(rows):
        groups[at, row] = 1
    sums = groups @ (average.matrices.float() * seen) @ groups.T
    first, *others = average.special
    names = {slot: f"[SEP] {slot}" if others[1:] else "[SEP]" for slot in others}
    names[first] = "[CLS]"
    labels = [names.get(row[0], f"{row[0]}–{row[-1]}" if row[1:] else str(row[0])) for row in rows]
    return [row[0] for row in rows], labels, sums / (groups @ seen.float() @ groups.T)


def _levels(average: Average, most: int) -> dict[str, Any]:
    slots, labels, means = _means(average, most)
    known = means.nan_to_num()
    largest = known.amax(dim=(-2, -1))
    share = known.clamp(min=0) / largest.clamp(min=torch.finfo().tiny)[..., None, None]
    levels = (TOP * share.sqrt()).round().masked_fill(means.isnan(), UNSEEN).to(torch.uint8)
    patterns = average.patterns
    return {
        "title": f"{average.encoder} · {average.task}",
        "labels": labels,
        "special": [row for row, slot in enumerate(slots) if slot in average.special],
        "heads": means.shape[1],
        "patterns": [pattern(patterns, at) for at in np.ndindex(*largest.shape)],
        "largest": [float(f"{value:.6g}") for value in largest.flatten().tolist()],
        "levels": base64.b64encode(np.ascontiguousarray(levels.numpy()).tobytes()).decode(),
    }
