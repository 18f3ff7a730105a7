"""What a study asked and found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from papa.reporting.wording import (
    condition,
    ends_label,
    fraction_label,
    lost_label,
    mean_label,
    metric_label,
    names_of,
    order_label,
    orders_matter,
    percent_label,
    score_label,
    varying,
)
from papa.scores.order_comparison import GROUP, RANDOM, fewest_random_lists
from papa.scores.summary import (
    ONE_ANSWER,
    WORDS,
    distinct_results,
    drops_over_tasks,
    reason_sentence,
)
from papa.spec import StudySpec
from papa.spec.study import CONTROLLED

_PAIR = ["encoder", "task"]
_POWER = (
    "where labels raise τ from .13 to .21, a simulation tells it in 35 % of studies of 5 seeds, "
    "and in 80 % of 10"
)
"""Of λ's control (``python -m benchmarks.certainty control``)."""
_COUNTS = {"rows": "rows", "tokens": "tokens", "texts_cut": "texts cut", "words_cut": "words cut"}


def plan_sentence(study: StudySpec, summary: pandas.DataFrame) -> str:
    """What was asked, in one sentence."""
    tasks, constants = (entry.name for entry in study.tasks), (e.label for e in study.substitutes)
    fractions = map(fraction_label, sorted(study.keep, reverse=True))
    orders = f"; heads become constant in the order: {', '.join(map(order_label, study.orders))}"
    return (
        f"How far does the score of {', '.join(summary['encoder'].unique())} on {', '.join(tasks)} "
        f"fall when attention heads stop depending on the input? A share of {', '.join(fractions)} "
        f"of the heads stays input-dependent; the others use constant matrices "
        f"({', '.join(constants)}){orders if orders_matter(study.keep) else ''}."
    )


def answers(summary: pandas.DataFrame) -> list[str]:
    """What the fewest input-dependent heads leave of each encoder's score on each task, a sentence
    for each, over all kinds of constants and, where they matter, head orders; of several encoders
    also ``mean_drops``. Where the original score does not beat its baselines the
    sentence says that nothing can be told of drops.
    """
    cells = distinct_results(summary[summary["fraction"] == summary["fraction"].min()])
    originals = summary[summary["fraction"] == 1].drop_duplicates(_PAIR).set_index(_PAIR)
    sentences = []
    for key, own in cells.groupby(_PAIR, sort=False):
        first = own.iloc[0]
        found = f"{key[0]} on {key[1]}: {metric_label(first)}"
        if key in originals.index:
            found += f" {mean_label(originals.loc[key])} with every head input-dependent"
        clauses = [found]
        if first["reason"]:
            clauses.append(f"what constant heads cost cannot be told: {reason_sentence(first)}")
        axes = varying(own, ("constants", "order"))
        for cell in own.to_dict("records") if first["fraction"] < 1 else ():
            which = f" ({', '.join(names_of(cell, axes).values())})" if axes else ""
            left = f"{mean_label(cell)} {condition(cell['fraction'])}{which}"
            clauses.append(left + ("" if cell["reason"] else f", drop {lost_label(cell)}"))
        if not pandas.isna(first["always_one_answer"]):
            answer = f"always '{first['one_answer']}'" if first["one_answer"] else ONE_ANSWER
            baselines = f"{answer} scores {score_label(first['always_one_answer'])}"
            if not pandas.isna(first["word_embeddings"]):
                baselines += f", {WORDS} {ends_label('word_embeddings', first)}"
            clauses.append(baselines)
        sentences.append(f"{'; '.join(clauses)}.")
    return sentences + mean_drops(summary)


def mean_drops(summary: pandas.DataFrame) -> list[str]:
    """In a sentence, each encoder's mean drop over the tasks, by both readings of an
    average drop, or why there is none; nothing for one encoder.
    """
    points, left_out = drops_over_tasks(summary)
    without = "".join(f"; left out: {task} ({reason})" for task, reason in left_out.items())
    if len(points) < 2:
        several = left_out and summary["encoder"].nunique() > 1
        return [f"No mean drop compares the encoders{without}."] if several else []
    both = (
        f"{point['encoder']} {percent_label(point['relative_drop'])} and "
        f"{percent_label(point['drop_of_means'])}"
        for point in points.to_dict("records")
    )
    return [
        f"The mean relative drop over tasks {condition(summary['fraction'].min())} "
        f"({summary['constants'].iloc[0]}), and the drop of the mean score: "
        f"{', '.join(both)}{without}."
    ]


def certainty(found: Mapping[str, Any]) -> str:
    """In a sentence, whether λ's order and its constant heads can be told from chance; ``found`` is
    ``papa.ranking.seeds.TrainedLambda.facts``.
    """
    trained = f" λ was trained on {found['objective']}." if found.get("objective") else ""
    if "told" not in found:
        many = "the same for every seed" if found["seeds"] > 1 else "from one seed"
        return f"λ is {many}: nothing is known of its certainty.{trained}"
    shares = [
        f"{100 * one['share']:.0f} % at {fraction_label(one['fraction'])} (by chance "
        f"{100 * one['by_chance']:.0f} %{'' if one['told'] else ', from which it cannot be told'})"
        for one in found["shared"]
    ]
    shared = f"; of the constant heads two seeds share {', '.join(shares)}" if shares else ""
    beside = " Seeds have rows of their own. "
    if not found["told"]:
        beside = ""
    elif not found["own_rows"]:
        beside = " Seeds share their rows, and would agree on labels without meaning as well."
    elif found.get("label_free"):
        beside += "No labels were read."
    elif found["control"] is None:
        beside += "Whether the order owes anything to the labels takes λ of shuffled labels "
        beside += f"beside it, with {CONTROLLED} seeds or more."
    else:
        tau, informative = found["control"]
        beside += f"On the same rows with shuffled labels τ is {tau:.2f}; "
        beside += (
            "that is less, beyond chance, so the order is informative."
            if informative
            else f"whether that is less cannot be told from chance: {_POWER}."
        )
    return (
        f"Over {found['seeds']} seeds the head order by λ "
        f"{'is reproducible' if found['told'] else 'cannot be told from chance'}: Kendall's τ is "
        f"{found['kendall_tau']:.2f} between two of them (of random orders below "
        f"{found['tau_by_chance']:.2f} in 95 % of studies), and λ of {found['heads_told']} of "
        f"{found['heads']} heads can be told from .5 (by chance {0.05 * found['heads']:.0f})"
        f"{shared}.{beside}{trained}"
    )


def against_random(pairs: pandas.DataFrame) -> list[str]:
    """A sentence for every order that is compared with random ones: how its mean score differs."""
    means = pairs[pairs["fraction"].isna()]
    fractions = sorted(pairs["fraction"].dropna().unique(), reverse=True)
    sentences = []
    for row in means.to_dict("records"):
        if RANDOM not in (row["order"], row["other"]):
            continue
        difference, low, high = row["difference"], row["low"], row["high"]
        order = row["order"]
        if order == RANDOM:
            difference, low, high = -difference, -high, -low
            order = row["other"]
        axes = varying(means, ("encoder", "task", "constants"))
        where = "".join(f", {name}" for name in names_of(row, axes).values())
        sentences.append(
            f"{order_label(order)} less random orders{where}: "
            f"{score_label(difference, low, high)} in the mean score over "
            f"{', '.join(map(fraction_label, fractions))}, "
            f"{'beyond chance' if row['beyond_chance'] else 'not beyond chance'} at 5 %."
        )
    return sentences


def _random_lists_needed(means: pandas.DataFrame) -> int:
    """How many random lists a difference from random orders takes to be beyond chance."""
    with_random = means[(means["order"] == RANDOM) | (means["other"] == RANDOM)]
    compared = with_random.groupby(GROUP).size()
    return fewest_random_lists(int(compared.max())) if len(compared) else 0


def orders_note(pairs: pandas.DataFrame) -> str:
    """What the comparison of head orders is, and how many differences are beyond chance."""
    means = pairs[pairs["fraction"].isna()]
    fractions = sorted(pairs["fraction"].dropna().unique(), reverse=True)
    needed = _random_lists_needed(means)
    lists = (
        f" Beside random orders, that takes {needed} random lists, one a seed." if needed else ""
    )
    return (
        f"Of {len(means)} differences between two head orders {means['beyond_chance'].sum()} are "
        "beyond chance at 5 %, by Holm's rule over what is compared with random orders, and over "
        "all other pairs, of one encoder, task and kind of constants. They are of mean scores over "
        f"{', '.join(map(fraction_label, fractions))}, paired by seed and example.{lists}"
    )


def counts(results: pandas.DataFrame, corpora: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By what they are of, rows and tokens of each corpus and what its layout cut off, training /
    validation; and the share of entries that validation rows read and the average never saw.
    """
    found = {}
    for name, metadata in corpora.items():
        splits = ((what, metadata.get(key, {})) for key, what in _COUNTS.items())
        own = (f"{' / '.join(f'{n:,}' for n in of.values())} {what}" for what, of in splits if of)
        found[f"Rows of {name}"] = ", ".join(own)
    axes = ["encoder", "task", "constants"]
    for row in results.dropna(subset="unseen_share").drop_duplicates(axes).to_dict("records"):
        share = f"{100 * row['unseen_share']:.3f} % of the entries read"
        found[f"Never seen: {' · '.join(row[axis] for axis in axes)}"] = share
    return found


def of_text(results: pandas.DataFrame, corpora: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """In sentences, the warnings of ``papa.text.rows`` on each corpus, and which class of a
    task is which of a model's own head.
    """
    warnings = [
        f"Beware, {name}: {sentence}."
        for name, metadata in corpora.items()
        for sentence in metadata.get("notes", {}).get("warnings", ())
    ]
    classes = results[results["classes"] != ""].drop_duplicates(_PAIR)
    return warnings + [
        f"{row['encoder']} on {row['task']}: the classes of its own head: {row['classes']}."
        for row in classes.to_dict("records")
    ]
