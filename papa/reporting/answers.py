"""What a study found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas

from papa.reporting.wording import (
    METRICS,
    condition,
    fraction_label,
    joined,
    lost_label,
    mean_label,
    metric_label,
    names_of,
    percent_label,
    score_label,
    varying,
    words_label,
)
from papa.scores.summary import ONE_ANSWER, WORDS, distinct_results, reason_sentence
from papa.spec.study import CONTROLLED
from papa.spec.task import UNLABELLED_METRICS

_NEAR_ZERO = 0.1
"""A drop relative to a smaller original score swings with noise and is left out of averages."""
_PAIR = ["encoder", "task"]
_SHARED_ROWS = (
    " Seeds share their rows, so they would agree on labels without meaning as well: this does not "
    "say that the order is a good one."
)
_NO_CONTROL = (
    " Seeds have rows of their own. Whether the order owes anything to the labels takes λ of "
    f"shuffled labels beside it, with {CONTROLLED} seeds or more."
)


def answers(summary: pandas.DataFrame) -> list[str]:
    """What the fewest input-dependent heads leave of each encoder's score on each task, a sentence
    for each, over all kinds of constants and, where they matter, head orders; with several, another
    for the relative drop on average. Where the original score does not beat its baselines the
    sentence says that nothing can be told of drops.
    """
    cells = distinct_results(summary[summary["fraction"] == summary["fraction"].min()])
    originals = summary[summary["fraction"] == 1].drop_duplicates(_PAIR).set_index(_PAIR)
    sentences = []
    for key, own in cells.groupby(_PAIR, sort=False):
        first = own.iloc[0]
        found = [f"{key[0]} on {key[1]}: {metric_label(first)}"]
        if key in originals.index:
            found[0] += f" {mean_label(originals.loc[key])} with every head input-dependent"
        if first["fraction"] < 1:
            found += [_left(cell, own) for cell in own.to_dict("records")]
        doubt = "" if first["beats_baseline"] else reason_sentence(first)
        unknown = [f"what constant heads cost cannot be told: {doubt}"] if doubt else []
        sentences.append("; ".join(filter(None, [*found, baselines_label(first), *unknown])) + ".")
    return sentences + _average_drop(cells)


def _left(cell: dict[str, Any], cells: pandas.DataFrame) -> str:
    """A cell's score and what it lost: ``0.702 ± 0.010 with every head constant (zeros), drop …``;
    the drop is told where it can be.
    """
    lost = f", drop {lost_label(cell)}" if cell["beats_baseline"] else ""
    return f"{mean_label(cell)} {condition(cell['fraction'])}{_which(cell, cells)}{lost}"


def _which(cell: Any, cells: pandas.DataFrame) -> str:
    """What distinguishes a cell from the others of its sentence."""
    names = names_of(cell, varying(cells, ("constants", "order"))).values()
    return f" ({', '.join(names)})" if names else ""


def baselines_label(cell: Any) -> str:
    """Both baselines: ``always 'no' scores 0.600, word embeddings alone 0.500``, or ""."""
    if pandas.isna(cell["word_embeddings"]):
        return ""
    answer = f"{one_answer_label(cell)} scores {score_label(cell['always_one_answer'])}"
    return f"{answer}, {WORDS} {words_label(cell)}"


def one_answer_label(cell: Any) -> str:
    """``always 'negative'``; ``always one answer`` where it is no class."""
    return f"always '{cell['one_answer']}'" if cell["one_answer"] else ONE_ANSWER


def _average_drop(cells: pandas.DataFrame) -> list[str]:
    """The relative drop averaged over encoders and tasks, as the paper's abstract gives it."""
    if len(cells.drop_duplicates(_PAIR)) < 2 or (cells["fraction"] == 1).any():
        return []
    reasons = [_no_average(cell) for cell in cells.to_dict("records")]
    kept = cells[[not reason for reason in reasons]]
    names = cells["encoder"] + " on " + cells["task"]
    left_out = {name: reason for name, reason in zip(names, reasons, strict=True) if reason}
    drops = [
        percent_label(own["relative_drop"].mean()) + _which(own.iloc[0], kept)
        for _, own in kept.groupby(["constants", "order"], sort=False)
    ]
    pairs = len(kept.drop_duplicates(_PAIR))
    found = f"the relative drop is {joined(drops)}" if pairs > 1 else "too few drops are left"
    without = "".join(f"; left out: {name} ({reason})" for name, reason in left_out.items())
    return [f"On average over {pairs} pairs of encoder and task, {found}{without}."]


def _no_average(cell: dict[str, Any]) -> str:
    """Why a cell's relative drop is in no average; "" where it is."""
    if not cell["beats_baseline"]:
        return str(cell["reason"])
    if pandas.isna(cell["relative_drop"]):
        return "no relative drop"
    if cell["metric"] in UNLABELLED_METRICS:
        return "measured against its own answers"
    if cell["metric"] == "negative_log_perplexity":
        return f"no share of a {METRICS[cell['metric']]}"
    return f"an original below {_NEAR_ZERO:g}" if cell["original"] < _NEAR_ZERO else ""


def certainty(found: Mapping[str, Any]) -> str:
    """In a sentence, whether λ's order and its constant heads can be told from chance; ``found`` is
    ``papa.ranking.seeds.TrainedLambda.facts``.
    """
    trained = f" λ was trained on {found['objective']}." if found.get("objective") else ""
    if "told" not in found:
        many = "the same for every seed" if found["seeds"] > 1 else "from one seed"
        return f"λ is {many}: nothing is known of its certainty.{trained}"
    told = "is reproducible" if found["told"] else "cannot be told from chance"
    shares = [
        f"{100 * one['share']:.0f} % at {fraction_label(one['fraction'])} (by chance "
        f"{100 * one['by_chance']:.0f} %{'' if one['told'] else ', from which it cannot be told'})"
        for one in found["shared"]
    ]
    shared = f"; of the constant heads two seeds share {joined(shares)}" if shares else ""
    return (
        f"Over {found['seeds']} seeds the head order by λ {told}: Kendall's τ is "
        f"{found['kendall_tau']:.2f} between two of them (of random orders below "
        f"{found['tau_by_chance']:.2f} in 95 % of studies), and λ of {found['heads_told']} of "
        f"{found['heads']} heads can be told from .5 (by chance {0.05 * found['heads']:.0f})"
        f"{shared}.{_beside_control(found) if found['told'] else ''}{trained}"
    )


def _beside_control(found: Mapping[str, Any]) -> str:
    """What reproducible orders owe to the labels, as far as it is known."""
    if found["control"] is None:
        return _NO_CONTROL if found["own_rows"] else _SHARED_ROWS
    tau, informative = found["control"]
    known = (
        "that is less, beyond chance, so the order is informative"
        if informative
        else "whether that is less cannot be told from chance"
    )
    return (
        f" Seeds have rows of their own. On the same rows with shuffled labels τ is {tau:.2f}; "
        f"{known}."
    )


def orders_note(pairs: pandas.DataFrame) -> str:
    """What the comparison of head orders is, and how many differences are beyond chance."""
    means = pairs[pairs["fraction"].isna()]
    fractions = sorted(pairs["fraction"].dropna().unique(), reverse=True)
    return (
        f"Of {len(means)} differences between two head orders {means['beyond_chance'].sum()} are "
        "beyond chance at 5 %, by Holm's rule over what is compared with random orders, and over "
        "all other pairs, of one encoder, task and kind of constants. They are of mean scores over "
        f"{joined(map(fraction_label, fractions))}, paired by seed and example."
    )
