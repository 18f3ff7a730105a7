"""Figures of joint effects: what sets of heads cost together, beside the sum of single effects."""

import pandas

from papa.reporting.figures import (
    PANEL,
    STEP,
    TOOLTIP,
    Figure,
    Spec,
    domain,
    figure,
    layer,
    nominal,
    number,
)
from papa.reporting.redundancy import shown_sets
from papa.spec.columns import PAIR
from papa.spec.orders import head_name

_EFFECTS = {"joint": "the set together", "single_sum": "the sum of its heads alone"}
"""The effects of a set of heads that are compared, by the column."""
_NAMED_HEADS = 3
"""The most heads of a set that its name lists."""


def joint_effects_figure(effects: pandas.DataFrame) -> Figure:
    """Return a figure of what sets of heads, a row each, cost together, beside the sum of what each
    head costs; of ``measure``, only ``shown_sets`` of visible effect are drawn.
    """
    rows = _effects_in_rows(effects)
    title = "Sets of heads: the effect of replacing them together and one by one, 95 % intervals."
    return figure("joint-effects", title, "joint_effects", rows, {"width": 420, **_effects(rows)})


def joint_effect_panels(effects: pandas.DataFrame) -> list[Figure]:
    """Return a panel with the sets of each encoder and task, for a page."""
    panels = []
    for (encoder, task), effects_of_pair in effects.groupby(PAIR, sort=False):
        rows = _effects_in_rows(effects_of_pair)
        title = f"{task} · {encoder}"
        body = {**PANEL, **_effects(rows)}
        name = f"joint-effects-{encoder}-{task}"
        panels.append(figure(name, title, "joint_effects", rows, body, encoder=encoder, task=task))
    return panels


def _effects_in_rows(effects: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row for each set and effect, with the set's name, which no other set has."""
    if "pair" in effects:
        effects = shown_sets(effects)
        # A pair beside a set that costs 20 times as much would be a point at 0.
        smallest = 0.05 * effects["joint"].max()
        effects = effects[(effects["pair"] == "") | (effects["joint"] > smallest)]
    names = [f"{count} heads" if count > 1 else "1 head" for count in effects["count"]]
    if "pair" in effects:
        names = [pair or name for name, pair in zip(names, effects["pair"], strict=True)]
    if "heads" in effects:
        names = [
            " + ".join(head_name(*head) for head in heads) if len(heads) <= _NAMED_HEADS else name
            for name, heads in zip(names, effects["heads"], strict=True)
        ]
    repeated = pandas.Series(names, dtype=str).duplicated(keep=False)
    unique_names = [
        f"{name} (set {number})" if is_repeated else name
        for number, (name, is_repeated) in enumerate(zip(names, repeated, strict=True), 1)
    ]
    columns = [axis for axis in PAIR if axis in effects]
    frames = [
        effects[columns].assign(
            set=unique_names,
            effect=label,
            value=effects[column],
            low=effects[f"{column}_low"],
            high=effects[f"{column}_high"],
        )
        for column, label in _EFFECTS.items()
    ]
    return pandas.concat(frames, ignore_index=True)


def _effects(rows: pandas.DataFrame) -> Spec:
    """Return the layers of a panel of joint effects: two points with their intervals for each
    set.
    """
    scale = domain(rows[["value", "low", "high"]], 0.0)
    sets = list(rows["set"].unique())
    colour = nominal("effect", scale={"domain": [*_EFFECTS.values()]})
    title = "growth of the mean loss"
    # So few ticks that each has room for its label.
    axis = {"scale": scale, "axis": {"tickCount": 5}}
    value = {"x": number("value", title, **axis), "color": colour, "shape": colour}
    interval = {"x": number("low", title, **axis), "x2": {"field": "high"}, "color": colour}
    zero = {"x": {"datum": 0, "type": "quantitative", "title": title, **axis}}
    position = {
        "y": nominal("set", scale={"domain": sets, "paddingInner": 0.4}),
        "yOffset": nominal("effect", scale={"domain": [*_EFFECTS.values()]}),
    }
    points = [
        layer("rule", interval, where="isValid(datum.low)"),
        layer("point", value, tooltip=TOOLTIP),
    ]
    return {
        "height": 2 * STEP * len(sets),
        "layer": [layer("rule", zero), {"encoding": position, "layer": points}],
    }
