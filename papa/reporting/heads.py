"""Figures of heads: maps of their scores, and their average attention, of all heads for a page (a
byte an entry) and of chosen heads as a figure.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.descriptions.patterns import HeadPatterns, head_patterns
from papa.ranking.kv_groups import COLUMN
from papa.ranking.orders import SCORING_METHODS
from papa.reporting.figures import TOOLTIP, Figure, Spec, figure, layer, nominal, number
from papa.reporting.wording import WrittenTable
from papa.scores.levels import LEVEL
from papa.spec.columns import PAIR
from papa.spec.orders import UNIT_LABELS, Head, Unit, head_name

MOST_ENTRIES = 2_400_000
"""The most entries of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5
MB."""
MOST_ROWS = 160
"""The most rows of a matrix on a page: a screen does not show more."""
_FIGURE_ROWS = 64
"""The most rows of a matrix in a figure, where each entry is a rectangle."""
UNOBSERVED = 255
"""The level of an entry that the average never observed."""
TOP = 254
"""The level of a matrix's largest entry."""


@dataclass(frozen=True, eq=False)
class AttentionAverage:
    """The average attention of one encoder's heads on one task, not normalised.

    Attributes:
        observed: inputs with tokens at both slots; or whether any had.
        special: the slot of [CLS], then those of [SEP].
    """

    encoder: str
    task: str
    matrices: Float[Tensor, "layers heads slots slots"]
    observed: Float[Tensor, "slots slots"] | Bool[Tensor, "slots slots"]
    special: tuple[int, ...]

    @property
    def patterns(self) -> HeadPatterns:
        """The patterns of the matrices (paper, Section 5.1)."""
        return head_patterns(self.matrices, self.observed, self.special)


def head_panels(heads: pandas.DataFrame) -> list[Figure]:
    """Return a map for each score of one encoder on one task, layer by head or group of heads.

    Where a score has a neutral value (.5 of λ), a head whose 95 % interval excludes it has a dot
    and the colour of the interval's nearer bound; otherwise colours are the scores.
    """
    panels = []
    for (encoder, task, method), scores in heads.groupby([*PAIR, "method"], sort=False):
        unit: Unit = "head"
        if COLUMN in scores:
            # The heads of a group have one score.
            unit = "kv_group"
            scores = scores.drop_duplicates(["layer", COLUMN])
        label = {"lambda": "λ"}.get(method) or getattr(SCORING_METHODS.get(method), "label", method)
        neutral = 0.5 if method == "lambda" else None
        if neutral is None or scores[["low", "high"]].isna().any(axis=None):
            scores = scores.assign(nearer=scores["score"])
            layers = [_squares(label, {"scheme": "cividis"})]
            title: list[str] = []
        else:
            # The bound nearer to the neutral value; the value itself if the interval holds it.
            scores = scores.assign(nearer=np.clip(neutral, scores["low"], scores["high"]))
            layers = _diverging_layers(label, scores["nearer"], neutral)
            title = [
                f"Dot, colour: the 95 % interval excludes {neutral:g}.",
                f"{(scores['nearer'] != neutral).sum()} of {len(scores)} {UNIT_LABELS[unit]}; "
                f"by chance about {LEVEL * len(scores):.2g} would.",
            ]
        body = {
            "width": {"step": 24},
            "height": {"step": 24},
            "title": {"text": title, "fontSize": 11, "fontWeight": "normal"},
            "encoding": {
                "x": {"field": unit, "type": "ordinal"},
                "y": {"field": "layer", "type": "ordinal"},
            },
            "layer": layers,
        }
        name = f"{label} · {encoder} · {task}"
        panels.append(
            figure(
                f"heads-{name}",
                name,
                "heads",
                scores,
                body,
                encoder=encoder,
                task=task,
                method=method,
            )
        )
    return panels


def _diverging_layers(label: str, bounds: pandas.Series, neutral: float) -> list[Spec]:
    """Return squares in two colours about a neutral value, with dots where a bound is not it."""
    largest = float((bounds - neutral).abs().max()) or 1.0
    scale = {
        "domain": [neutral - largest, neutral, neutral + largest],
        # White stays white in both themes; colour-blind readers see the ends differ.
        "range": ["#b35806", "#f7f7f7", "#2166ac"],
    }
    is_significant = f"datum.nearer !== {neutral}"
    dots = layer("circle", {}, where=is_significant, size=9, color="#1d2733", opacity=1)
    return [_squares(label, scale), dots]


def _squares(label: str, scale: Spec) -> Spec:
    colour = {"color": number("nearer", label, scale=scale)}
    return layer("rect", colour, stroke="#8a94a0", strokeWidth=0.5, tooltip=TOOLTIP)


def pattern_name(patterns: HeadPatterns, head: Head) -> str:
    """Return the pattern of a head in words, such as ``diagonal +1, concentrated``."""
    names = []
    if patterns.diagonal[head]:
        offset = int(patterns.offset[head])
        names.append(f"diagonal {offset:+d}" if offset else "diagonal")
    if patterns.special[head]:
        on_cls = patterns.cls_mass[head] > patterns.sep_mass[head]
        names.append("on [CLS]" if on_cls else "on [SEP]")
    if patterns.concentrated[head]:
        names.append("concentrated")
    return ", ".join(names) or "no pattern"


def pattern_table(averages: Sequence[AttentionAverage]) -> WrittenTable:
    """Return a table of the shares of heads that show a pattern, by encoder and task."""
    rows = []
    for average in averages:
        shares = {name: f"{share:.3f}" for name, share in average.patterns.summary().items()}
        rows.append({"Encoder": average.encoder, "Task": average.task, **shares})
    note = "Shares of heads, and mean weights (paper, Section 5.1; docs/method.md defines them)."
    return WrittenTable("Patterns", rows, note)


def matrix_spec(labels: Sequence[str]) -> Spec:
    """Return the specification of one matrix of the frame ``entries``, with columns from, to and
    weight; ``labels`` are the slots' names.
    """
    # Numbers at about eight slots, and every name.
    step = max(1, len(labels) // 8)
    shown = [label for slot, label in enumerate(labels) if not label.isdigit() or slot % step == 0]
    slots = {
        "type": "ordinal",
        "sort": list(labels),
        "axis": {"values": shown, "labelOverlap": "greedy"},
    }
    encoding = {
        "x": {"field": "to", "title": "slot attended to", **slots},
        "y": {"field": "from", "title": "slot that attends", **slots},
        "color": number(
            "weight",
            "mean attention",
            scale={"type": "sqrt", "scheme": "cividis"},
            # Shorter, its only labels would be 0 and 1.
            legend={"gradientLength": 200},
        ),
    }
    return {
        "width": 200,
        "height": 200,
        "mark": {"type": "rect", "tooltip": TOOLTIP},
        "encoding": encoding,
    }


def page_matrices(averages: Sequence[AttentionAverage]) -> list[dict[str, object]]:
    """Return the matrices of all encoders and tasks for a page.

    An entry is ``largest · (level / TOP)²``: the root keeps faint diagonals apart, and the error
    stays below 0.4 % of the largest. If they are too many for one page, a row stands for two slots
    or more.
    """
    heads = sum(average.matrices.shape[:2].numel() for average in averages)
    return [
        _page_matrices(average, min(MOST_ROWS, math.isqrt(MOST_ENTRIES // heads)))
        for average in averages
    ]


def chosen_figure(average: AttentionAverage) -> Figure:
    """Return a figure of the heads that show a pattern most, if one does: diagonal, [CLS], [SEP],
    and of the least concentrated head (paper, Figure 4).
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
        head = divmod(int(strength.argmax()), strength.shape[1])
        if name == "spread" or name in pattern_name(patterns, head):
            chosen.setdefault(head, name)
    return heads_figure(average, chosen)


def heads_figure(average: AttentionAverage, names_of_heads: Mapping[Head, str]) -> Figure:
    """Return a figure of some heads, by (layer, head) with their names, on one colour scale."""
    _, labels, means = _mean_rows(average, _FIGURE_ROWS)
    frames = [
        pandas.DataFrame(means[head].numpy(), index=labels, columns=labels)
        .rename_axis("from")
        .melt(var_name="to", value_name="weight", ignore_index=False)
        .reset_index()
        .assign(head=f"{name}: {head_name(*head)}")
        for head, name in names_of_heads.items()
    ]
    # Whole pixels an entry: between fractions of pixels the background shows as a grid.
    pixels = {"step": max(1, 200 // len(labels))}
    one_head = {**matrix_spec(labels), "width": pixels, "height": pixels}
    body = {"facet": nominal("head"), "columns": 4, "spec": one_head}
    title = "Constant matrices of chosen heads."
    return figure("matrices", title, "entries", pandas.concat(frames), body)


def _mean_rows(
    average: AttentionAverage, most_rows: int
) -> tuple[list[int], list[str], Float[Tensor, "layers heads rows rows"]]:
    """Return the first slot and the label of each row, and the means of the entries that the
    average observed, nan where there are none.

    Neighbouring slots are put together until there are about ``most_rows`` rows; [CLS] and [SEP]
    have rows of their own. Slots without any entry have no row.
    """
    is_observed = average.observed > 0
    slots = (is_observed.any(dim=0) | is_observed.any(dim=1)).nonzero().flatten().tolist()
    slots_per_row = math.ceil(len(slots) / most_rows)
    rows: list[list[int]] = []
    for slot in slots:
        row = rows[-1] if rows else []
        is_next = bool(row) and slot == row[-1] + 1 and len(row) < slots_per_row
        if is_next and not {slot, row[0]} & {*average.special}:
            row.append(slot)
        else:
            rows.append([slot])
    is_in_row = torch.zeros(len(rows), len(is_observed))
    for index, row in enumerate(rows):
        is_in_row[index, row] = 1
    sums = is_in_row @ (average.matrices.float() * is_observed) @ is_in_row.T
    entries = is_in_row @ is_observed.float() @ is_in_row.T
    labels = [_row_label(row, average.special) for row in rows]
    return [row[0] for row in rows], labels, sums / entries


def _row_label(slots: Sequence[int], special: Sequence[int]) -> str:
    """Return the label of a row of slots: [CLS], [SEP] (with its slot if there are two), or
    numbers.
    """
    first = slots[0]
    cls, *separators = special
    if first == cls:
        return "[CLS]"
    if first in separators:
        return f"[SEP] {first}" if len(separators) > 1 else "[SEP]"
    return f"{first}–{slots[-1]}" if len(slots) > 1 else str(first)


def _page_matrices(average: AttentionAverage, most_rows: int) -> dict[str, object]:
    """Return the matrices of one encoder and task as a page reads them (``report.js``): ``levels``
    are uint8 [layers, heads, rows, rows] in base64, ``special`` the rows of [CLS] and [SEP],
    ``heads`` those of a layer.
    """
    slots, labels, means = _mean_rows(average, most_rows)
    weights = means.nan_to_num()
    largest = weights.amax(dim=(-2, -1))
    share = weights.clamp(min=0) / largest.clamp(min=torch.finfo().tiny)[..., None, None]
    levels = (TOP * share.sqrt()).round().masked_fill(means.isnan(), UNOBSERVED).to(torch.uint8)
    patterns = average.patterns
    return {
        "title": f"{average.encoder} · {average.task}",
        "labels": labels,
        "special": [row for row, slot in enumerate(slots) if slot in average.special],
        "heads": means.shape[1],
        "patterns": [pattern_name(patterns, head) for head in np.ndindex(*largest.shape)],
        "largest": [float(f"{value:.6g}") for value in largest.flatten().tolist()],
        "levels": base64.b64encode(np.ascontiguousarray(levels.numpy()).tobytes()).decode(),
    }
