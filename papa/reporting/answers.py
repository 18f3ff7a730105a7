"""The study's answers in sentences, one for each encoder and task."""

from __future__ import annotations

from typing import Any

import pandas

from papa.reporting.summary import distinct_results
from papa.reporting.tables import baselines_label, reason_sentence
from papa.reporting.wording import (
    METRICS,
    heads_label,
    joined,
    lost_label,
    mean_label,
    metric_label,
    names_of,
    percent_label,
    varying,
)
from papa.spec.task import UNLABELLED_METRICS

_NEAR_ZERO = 0.1
"""A drop relative to a smaller original score swings with noise and is left out of averages."""
_PAIR = ["encoder", "task"]


def answers(summary: pandas.DataFrame) -> list[str]:
    """How much of its score each encoder keeps on each task where the fewest heads stay
    input-dependent.

    One sentence for each encoder and task, over all constants kinds, and over head orders where
    they matter; with several encoders or tasks another one for the relative drop on average. Where
    the original score does not beat its baselines the sentence says so and makes no claim.
    """
    cells = distinct_results(summary[summary["fraction"] == summary["fraction"].min()])
    originals = summary[summary["fraction"] == 1].drop_duplicates(_PAIR).set_index(_PAIR)
    sentences = []
    for key, members in cells.groupby(_PAIR, sort=False):
        original, first = (originals.loc[key] if key in originals.index else None), members.iloc[0]
        if original is not None and not first["beats_baseline"]:
            sentences.append(_inconclusive(first, original))
        else:
            sentences.append(f"{_condition(first)}, {_outcome(members, original)}.")
    return sentences + _average_drop(cells)


def _inconclusive(cell: Any, original: Any) -> str:
    """The original does not beat its baselines: no claim about the drop."""
    score = f"{metric_label(cell)} {mean_label(original)} with every head input-dependent"
    return (
        f"On {cell['task']} the study cannot tell what constant heads cost {cell['encoder']}: "
        f"{reason_sentence(cell)} ({_facts(score, baselines_label(cell))})."
    )


def _facts(*facts: str) -> str:
    return "; ".join(filter(None, facts))


def _average_drop(cells: pandas.DataFrame) -> list[str]:
    """The relative drop averaged over encoders and tasks, as the paper's abstract gives it."""
    if len(cells.drop_duplicates(_PAIR)) < 2 or (cells["fraction"] == 1).any():
        return []
    reasons = [_no_average(cell) for cell in cells.to_dict("records")]
    shares = cells[[not reason for reason in reasons]]
    names = cells["encoder"] + " on " + cells["task"]
    left_out = {name: reason for name, reason in zip(names, reasons, strict=True) if reason}
    told = [f"{name} ({reason})" for name, reason in left_out.items()]
    without = f" Left out of averages: {'; '.join(told)}." if told else ""
    pairs = len(shares.drop_duplicates(_PAIR))
    if pairs < 2:
        return [f"No average of relative drops: fewer than two can be averaged.{without}"]
    drops = [
        percent_label(members["relative_drop"].mean()) + _names_suffix(members.iloc[0], shares)
        for _, members in shares.groupby(["constants", "order"], sort=False)
    ]
    counts = {axis: shares[axis].nunique() for axis in _PAIR}
    over = " and ".join(f"{count} {axis}{'s' * (count > 1)}" for axis, count in counts.items())
    if left_out:
        over = f"{pairs} pairs of encoder and task"
    return [f"On average over {over}, the relative drop is {joined(drops)}.{without}"]


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


def _condition(cell: Any) -> str:
    if cell["fraction"] in (0, 1):
        return f"With every head {'input-dependent' if cell['fraction'] else 'constant'}"
    share = heads_label(cell["fraction"], cell["share_of_heads"])
    return f"With {share} of the heads input-dependent"


def _outcome(cells: pandas.DataFrame, original: Any) -> str:
    first = cells.iloc[0]
    encoder, task, metric = first["encoder"], first["task"], metric_label(first)
    baselines = baselines_label(first)
    records = cells.to_dict("records")
    scores = joined(f"{cell['mean']:.3f}{_names_suffix(cell, cells)}" for cell in records)
    if original is None or first["fraction"] == 1:
        return f"{encoder} scores {scores} on {task} ({_facts(metric, baselines)})"
    drops = [lost_label(cell) for cell in records]
    full = original["mean"]
    # A share of a score means something only between positive scores, and of one that is not near
    # 0.
    no_share = cells["relative_drop"].isna().any()
    if no_share or full <= 0 or (cells["mean"] < 0).any():
        lost = f"{'drop' if no_share else 'relative drop'} {joined(drops)}"
        facts = _facts(metric, lost, baselines)
        return f"{encoder} goes from {full:.3f} to {scores} on {task} ({facts})"
    kept = [_share(cell["mean"] / full) for cell in records]
    told = f"{metric} {full:.3f} before"
    if len(records) == 1:
        told = f"{metric} {first['mean']:.3f} instead of {full:.3f}, drop {drops[0]}"
    else:
        kept = [
            f"{share} ({', '.join([*_names(cell, cells), f'drop {drop}'])})"
            for share, cell, drop in zip(kept, records, drops, strict=True)
        ]
    return f"{encoder} keeps {joined(kept)} of its score on {task} ({_facts(told, baselines)})"


def _share(share: float) -> str:
    """Whole percent; with a decimal where rounding would say that nothing changed."""
    whole = f"{100 * share:.0f}"
    return f"{100 * share:.1f} %" if whole == "100" and share != 1 else f"{whole} %"


def _names_suffix(cell: Any, cells: pandas.DataFrame) -> str:
    """What distinguishes a cell from the others in its sentence: `` (zeros)``."""
    names = _names(cell, cells)
    return f" ({', '.join(names)})" if names else ""


def _names(cell: Any, cells: pandas.DataFrame) -> list[str]:
    return list(names_of(cell, varying(cells, ("constants", "order"))).values())
