"""The study's answers in sentences, one for each encoder and task."""

from __future__ import annotations

from typing import Any

import pandas

from papa.reporting.summary import distinct_results
from papa.reporting.verdicts import averageable, baselines_label, reason_sentence
from papa.reporting.wording import (
    heads_label,
    joined,
    lost_label,
    metric_label,
    order_label,
    percent_label,
    score_label,
)


def answers(summary: pandas.DataFrame) -> list[str]:
    """How much of its score each encoder keeps on each task where the fewest heads stay
    input-dependent.

    One sentence for each encoder and task, over all constants kinds, and over head orders where
    they matter; with several encoders or tasks another one for the relative drop on average. Where
    the original score does not beat its baselines the sentence says so and makes no claim.
    """
    cells = distinct_results(summary[summary["fraction"] == summary["fraction"].min()])
    originals = (
        summary[summary["fraction"] == 1]
        .drop_duplicates(["encoder", "task"])
        .set_index(["encoder", "task"])
    )
    sentences = []
    for key, members in cells.groupby(["encoder", "task"], sort=False):
        original = originals.loc[key] if key in originals.index else None
        sentences.append(_sentence(members, original))
    return sentences + _average_drop(cells)


def _sentence(cells: pandas.DataFrame, original: Any) -> str:
    first = cells.iloc[0]
    if original is not None and not first["beats_baseline"]:
        return _inconclusive(first, original)
    return f"{_condition(first)}, {_outcome(cells, original)}."


def _inconclusive(cell: Any, original: Any) -> str:
    """The original does not beat its baselines: no claim about the drop."""
    full = score_label(original["mean"], original["low"], original["high"])
    facts = [f"{metric_label(cell)} {full} with every head input-dependent", baselines_label(cell)]
    return (
        f"On {cell['task']} the study cannot tell what constant heads cost {cell['encoder']}: "
        f"{reason_sentence(cell)} ({'; '.join(filter(None, facts))})."
    )


def _average_drop(cells: pandas.DataFrame) -> list[str]:
    """The relative drop averaged over encoders and tasks, as the paper's abstract gives it."""
    if len(cells.drop_duplicates(["encoder", "task"])) < 2 or (cells["fraction"] == 1).any():
        return []
    shares, left_out = averageable(cells)
    without = f" Left out of averages: {'; '.join(left_out)}." if left_out else ""
    if len(shares.drop_duplicates(["encoder", "task"])) < 2:
        return [f"No average of relative drops: fewer than two can be averaged.{without}"]
    drops = [
        percent_label(members["relative_drop"].mean()) + _names_suffix(members.iloc[0], shares)
        for _, members in shares.groupby(["constants", "order"], sort=False)
    ]
    over = (
        f"{_counted(shares['encoder'].nunique(), 'encoder')} and "
        f"{_counted(shares['task'].nunique(), 'task')}"
    )
    if left_out:
        over = f"{len(shares.drop_duplicates(['encoder', 'task']))} pairs of encoder and task"
    return [f"On average over {over}, the relative drop is {joined(drops)}.{without}"]


def _condition(cell: Any) -> str:
    if cell["fraction"] == 0:
        return "With every head constant"
    if cell["fraction"] == 1:
        return "With every head input-dependent"
    return (
        f"With {heads_label(cell['fraction'], cell['share_of_heads'])} of the heads input-dependent"
    )


def _outcome(cells: pandas.DataFrame, original: Any) -> str:
    first = cells.iloc[0]
    encoder = first["encoder"]
    task = first["task"]
    metric = metric_label(first)
    baselines = baselines_label(first)
    records = cells.to_dict("records")
    if original is None or first["fraction"] == 1:
        scores = [f"{cell['mean']:.3f}{_names_suffix(cell, cells)}" for cell in records]
        return (
            f"{encoder} scores {joined(scores)} on {task} "
            f"({'; '.join(filter(None, [metric, baselines]))})"
        )
    drops = [lost_label(cell) for cell in records]
    full = original["mean"]
    # A share of a score means something only between positive scores, and of one that is not near
    # 0.
    no_share = cells["relative_drop"].isna().any()
    if no_share or full <= 0 or (cells["mean"] < 0).any():
        scores = [f"{cell['mean']:.3f}{_names_suffix(cell, cells)}" for cell in records]
        facts = [metric, f"{'drop' if no_share else 'relative drop'} {joined(drops)}", baselines]
        return (
            f"{encoder} goes from {full:.3f} to {joined(scores)} on {task} "
            f"({'; '.join(filter(None, facts))})"
        )
    if len(records) == 1:
        kept = [f"{_share(first['mean'] / full)} %"]
        facts = [f"{metric} {first['mean']:.3f} instead of {full:.3f}, drop {drops[0]}", baselines]
    else:
        kept = [
            f"{_share(cell['mean'] / full)} % ({', '.join([*_names(cell, cells), f'drop {drop}'])})"
            for cell, drop in zip(records, drops, strict=True)
        ]
        facts = [f"{metric} {full:.3f} before", baselines]
    return (
        f"{encoder} keeps {joined(kept)} of its score on {task} ({'; '.join(filter(None, facts))})"
    )


def _share(share: float) -> str:
    """Whole percent; with a decimal where rounding would say that nothing changed."""
    whole = f"{100 * share:.0f}"
    return f"{100 * share:.1f}" if whole == "100" and share != 1 else whole


def _names_suffix(cell: Any, cells: pandas.DataFrame) -> str:
    """What distinguishes a cell from the others in its sentence: `` (zeros)``."""
    names = _names(cell, cells)
    return f" ({', '.join(names)})" if names else ""


def _names(cell: Any, cells: pandas.DataFrame) -> list[str]:
    names = [str(cell["constants"])] if cells["constants"].nunique() > 1 else []
    return names + ([order_label(cell["order"])] if cells["order"].nunique() > 1 else [])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
