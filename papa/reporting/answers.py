"""The study's answers in sentences, one for each encoder and task."""

from __future__ import annotations

import math
from typing import Any

import pandas

from papa.reporting.labels import METRICS, fraction_label, joined, order_label, percent_label


def answers(summary: pandas.DataFrame) -> list[str]:
    """How much of its score each encoder keeps on each task where the fewest heads keep their own attention.

    One sentence for each model and task, over all constants kinds, and over head orders where they matter;
    with several models or tasks another one for the relative drop on average.

    Args:
        summary: as ``papa.reporting.tables.summarise`` returns it.
    """
    lowest = summary["fraction"].min()
    points = summary[summary["fraction"] == lowest]
    if lowest in (0, 1):
        points = points.drop_duplicates(["model", "task", "constants"])
    if lowest == 1:
        points = points.drop_duplicates(["model", "task"])
    originals = summary[summary["fraction"] == 1].drop_duplicates(["model", "task"])
    whole = originals.set_index(["model", "task"])["mean"]
    sentences = [
        f"{_condition(lowest)}, {_outcome(members, float(whole.get(key, math.nan)))}."
        for key, members in points.groupby(["model", "task"], sort=False)
    ]
    return sentences + _average_drop(points)


def _average_drop(points: pandas.DataFrame) -> list[str]:
    """The relative drop averaged over encoders and tasks, as the paper's abstract gives it."""
    # A share of a negative log-perplexity is no share of a score.
    shares = points[(points["metric"] != "negative_log_perplexity") & points["relative_drop"].notna()]
    if len(shares.drop_duplicates(["model", "task"])) < 2 or (shares["fraction"] == 1).any():
        return []
    drops = [
        percent_label(members["relative_drop"].mean()) + _named(members.iloc[0], shares)
        for _, members in shares.groupby(["constants", "order"], sort=False)
    ]
    encoders = _counted(shares["model"].nunique(), "encoder")
    tasks = _counted(shares["task"].nunique(), "task")
    return [f"On average over {encoders} and {tasks}, the relative drop is {joined(drops)}."]


def _condition(fraction: float) -> str:
    if fraction == 0:
        return "With every head constant"
    if fraction == 1:
        return "With every head on its own attention"
    return f"With {fraction_label(fraction)} of the heads on their own attention"


def _outcome(points: pandas.DataFrame, original: float) -> str:
    first = points.iloc[0]
    model, task, metric = first["model"], first["task"], METRICS.get(first["metric"], first["metric"])
    if math.isnan(original) or first["fraction"] == 1:
        scores = [f"{point['mean']:.3f}{_named(point, points)}" for point in points.to_dict("records")]
        return f"{model} scores {joined(scores)} on {task} ({metric})"
    # A share of a score means something only between positive scores.
    if original <= 0 or (points["mean"] < 0).any():
        scores = [f"{point['mean']:.3f}{_named(point, points)}" for point in points.to_dict("records")]
        return f"{model} goes from {original:.3f} to {joined(scores)} on {task} ({metric})"
    kept = [f"{_share(point['mean'] / original)} %{_named(point, points)}" for point in points.to_dict("records")]
    told = f"{first['mean']:.3f} instead of {original:.3f}" if len(points) == 1 else f"{original:.3f} before"
    return f"{model} keeps {joined(kept)} of its score on {task} ({metric} {told})"


def _share(share: float) -> str:
    """Whole percent; with a decimal where rounding would say that nothing changed."""
    whole = f"{100 * share:.0f}"
    return f"{100 * share:.1f}" if whole == "100" and share != 1 else whole


def _named(point: Any, points: pandas.DataFrame) -> str:
    """What tells a point from the others of its sentence: `` (zeros)``."""
    names = [str(point["constants"])] if points["constants"].nunique() > 1 else []
    names += [order_label(point["order"])] if points["order"].nunique() > 1 else []
    return f" ({', '.join(names)})" if names else ""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
