"""What is said of joint effects: whether heads replace each other, in sentences and a table."""

import pandas

from papa.reporting.wording import (
    NOTHING,
    WrittenTable,
    axis_labels,
    effect_label,
    fraction_label,
    varying_axes,
)
from papa.scores.levels import LEVEL
from papa.spec.columns import PAIR

_MOST_PAIRS = 5
"""The most pairs of heads that a sentence, a table or a figure shows of an encoder and task."""
_EFFECTS = (
    "The first heads of the order by effect, on validation texts: by how much the mean loss grows, "
    "with all of them constant (average) and with each alone, in units of the loss; and the "
    "difference. Then the significantly redundant pairs (L0H11: layer 0, head 11, both from 0), at "
    "most five; joint_effects.csv has all pairs. Each 95 % interval is over texts, of one set, and "
    "not adjusted for skewness, as tests are. Losses curve, so heads that share nothing may have a "
    "small redundancy too."
)


def redundancy_sentences(effects: pandas.DataFrame) -> list[str]:
    """Return two sentences for each encoder and task of ``joint_effects.csv``: whether heads
    replace each other, so that the effects of single heads do not say what a set of them costs, and
    which pairs do.

    The first is of one set, the largest that is not all heads: of all sets at once the chance of a
    wrong sentence would be more than 5 %. The second corrects for the number of pairs.
    """
    sentences = []
    for (encoder, task), sets in effects.groupby(PAIR, sort=False):
        first_heads = sets[sets["pair"] == ""]
        # A fraction above 0 may round to no head, and is then a set of all heads too.
        all_heads = first_heads.loc[first_heads["fraction"] == 0, "count"]
        partial = first_heads[~first_heads["count"].isin(all_heads)]
        candidates = partial if len(partial) else first_heads
        row = candidates.nlargest(1, "count").to_dict("records")[0]
        joint = effect_label("joint", row)
        single = effect_label("single_sum", row)
        difference = effect_label("redundancy", row)
        if pandas.isna(row["p"]):
            conclusion = "whether heads replace each other is unknown: no test was possible"
        elif row["p"] >= LEVEL:
            conclusion = f"not significantly different ({difference}): no redundancy was found"
        elif row["redundancy"] > 0:
            conclusion = (
                f"significantly more, by {difference}: heads replace each other, so judge sets, "
                "not single heads"
            )
        else:
            less = effect_label("redundancy", {**row, "redundancy": -row["redundancy"]})
            conclusion = f"significantly less, by {less}: single effects overstate the cost"
        sentences.append(
            f"{encoder} on {task}: the {row['count']} heads of the smallest effects raise the loss "
            f"by {joint} if constant together, and by {single} in the sum of each alone; "
            f"{conclusion}."
        )
        pairs = sets[sets["pair"] != ""]
        sentences.append(
            f"{encoder} on {task}: of {len(pairs)} pairs of the heads of the smallest effects, "
            f"{_redundant_pairs_clause(pairs)}."
        )
    return sentences


def _redundant_pairs_clause(pairs: pandas.DataFrame) -> str:
    """Return which pairs are significantly redundant, and by which test, as a clause."""
    tested = pairs["p_holm"].notna().sum()
    if not tested:
        return "it is unknown which replace each other: no test was possible"
    corrected_for = "all"
    if tested < len(pairs):
        corrected_for = f"{tested}, as no two texts differ in the others and no test is possible"
    test = (
        "(t test over texts, adjusted for skewness, at the 5 % level, with Holm's correction for "
        f"{corrected_for})"
    )
    redundant = significant_pairs(pairs)
    if redundant.empty:
        return f"none costs significantly more together than in the sum of each alone {test}"
    names = [
        f"{row['pair']} by {effect_label('redundancy', row)}"
        for row in redundant[:_MOST_PAIRS].to_dict("records")
    ]
    if len(redundant) > len(names):
        names.append(f"{len(redundant) - len(names)} more")
    return (
        f"{len(redundant)} cost significantly more together than in the sum of each alone {test}: "
        f"{', '.join(names)}"
    )


def significant_pairs(effects: pandas.DataFrame) -> pandas.DataFrame:
    """Return the pairs of ``joint_effects.csv`` that cost significantly more together than in the
    sum of each alone, the most redundant first.
    """
    redundant = effects[(effects["p_holm"] < LEVEL) & (effects["redundancy"] > 0)]
    return redundant.sort_values("redundancy", ascending=False, kind="stable")


def shown_sets(effects: pandas.DataFrame) -> pandas.DataFrame:
    """Return the sets of heads that tables and figures show of one encoder and task: the first
    heads of the order, then the most redundant of the significant pairs.
    """
    pairs = significant_pairs(effects).head(_MOST_PAIRS)
    first_heads = effects[effects["pair"] == ""].drop_duplicates("count", keep="last")
    return pandas.concat([first_heads, pairs])


def effects_table(effects: pandas.DataFrame) -> WrittenTable:
    """Return a row for each of ``shown_sets`` of ``joint_effects.csv``: its joint effect, the sum
    of the effects of its heads, and their difference.
    """
    groups = [shown_sets(sets) for _, sets in effects.groupby(PAIR, sort=False)]
    rows = [
        {
            **axis_labels(row, varying_axes(effects, PAIR)),
            "Input-dependent": NOTHING if row["pair"] else fraction_label(row["fraction"]),
            "Constant heads": row["pair"] or str(row["count"]),
            "Together": effect_label("joint", row),
            "Sum of single heads": effect_label("single_sum", row),
            "Redundancy": effect_label("redundancy", row),
        }
        for row in pandas.concat(groups).to_dict("records")
    ]
    return WrittenTable("Redundancy", rows, _EFFECTS)
