"""Original scores against baselines: which beat them, which drops are marked and averaged."""

from __future__ import annotations

import math
from typing import Any

import pandas

from papa.reporting.wording import (
    METRICS,
    NOTHING,
    axis_label,
    metric_label,
    present,
    score_label,
    varying,
)
from papa.reporting.written import WrittenTable
from papa.scores.intervals import Measured, difference
from papa.spec.task import UNLABELLED_METRICS

MARK = "†"
"""Marks every drop of an encoder and task whose original score does not beat its baselines."""
INCONCLUSIVE = (
    "The original does not beat its baselines by more than its interval: its drops are "
    "inconclusive."
)
"""What the mark says in a figure; ``marks`` gives the reason of each."""
NEAR_ZERO = 0.1
"""A drop relative to a smaller original score swings with noise and is left out of averages."""
ONE_ANSWER, WORDS = "always one answer", "word embeddings alone"
_ONE_SEED = "one seed has no interval"
_ONE_EXAMPLE = "one validation row has no interval"
_NO_ORIGINAL = "the study has no fraction 1"


def not_beaten(original: Measured | None, one_answer: Measured, word_embeddings: Measured) -> str:
    """Why an original score does not beat its baselines; "" where both differences' intervals are
    above 0.

    Args:
        original: s₁; None where the study lacks fraction 1.
        one_answer, word_embeddings: the baselines, on the same examples; nan where there is none,
            which is no reason.
    """
    if original is None:
        return _NO_ORIGINAL
    baselines = {ONE_ANSWER: one_answer, WORDS: word_embeddings}
    known = {
        name: baseline
        for name, baseline in baselines.items()
        if not any(map(math.isnan, baseline.scores.values()))
    }
    lows = {name: difference(original, baseline).low for name, baseline in known.items()}
    if any(map(math.isnan, lows.values())):
        if len(original.scores) == 1:
            return _ONE_SEED
        if len(next(iter(original.influence.values()))) == 1:
            return _ONE_EXAMPLE
    names = [name for name, low in lows.items() if not low > 0]
    return f"does not beat {' or '.join(names)}" if names else ""


def baselines_label(cell: Any) -> str:
    """Both baselines in words: ``always 'no' scores 0.6, word embeddings alone 0.5``, or ""."""
    if pandas.isna(cell["word_embeddings"]):
        return ""
    words = score_label(
        cell["word_embeddings"], cell["word_embeddings_low"], cell["word_embeddings_high"]
    )
    return f"{one_answer_label(cell)} scores {cell['always_one_answer']:.3f}, {WORDS} {words}"


def one_answer_label(cell: Any) -> str:
    """``always 'negative'``; ``always one answer`` where it is no class."""
    return f"always '{cell['one_answer']}'" if cell["one_answer"] else ONE_ANSWER


def baseline_table(summary: pandas.DataFrame) -> WrittenTable:
    """Each original score, its baselines, and whether it beats both; no row
    where there are none.
    """
    groups = present(summary, ("encoder", "task", "study"))
    axes = varying(summary, groups) or groups[:1]
    several_metrics = summary["metric"].nunique() > 1
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        full = cells[cells["fraction"] == 1]
        original = NOTHING if full.empty else score_label(*full.iloc[0][["mean", "low", "high"]])
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        rows.append(
            [
                *(axis_label(axis, cell[axis]) for axis in axes),
                *([metric_label(cell)] if several_metrics else []),
                original,
                score_label(cell["always_one_answer"]) + answer,
                score_label(
                    cell["word_embeddings"],
                    cell["word_embeddings_low"],
                    cell["word_embeddings_high"],
                ),
                verdict(cell),
            ]
        )
    headings = [*(axis.capitalize() for axis in axes), *(["Metric"] if several_metrics else [])]
    headings += ["Original", "Always one answer", "Word embeddings alone", "Beats both"]
    return WrittenTable("Baselines", headings, rows)


def verdict(cell: Any) -> str:
    """``yes``, ``no``, or why it is unknown; nothing where there are no baselines."""
    if pandas.isna(cell["word_embeddings"]) and cell["beats_baseline"]:
        return NOTHING
    if cell["beats_baseline"]:
        return "yes"
    return "no" if cell["reason"].startswith("does not beat") else f"unknown: {cell['reason']}"


def marks(summary: pandas.DataFrame) -> list[str]:
    """A sentence for every encoder and task that is marked."""
    groups = present(summary, ("study", "encoder", "task"))
    cells = summary[~summary["beats_baseline"].astype(bool)].drop_duplicates(groups)
    return [
        f"{MARK} {', '.join(str(cell[axis]) for axis in groups)}: {reason_sentence(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]


def reason_sentence(cell: Any) -> str:
    """The reason as a clause of its own."""
    reason = cell["reason"]
    return (
        f"the original {reason} by more than its interval"
        if reason.startswith("does not beat")
        else reason
    )


def averageable(cells: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The cells, at one fraction, whose relative drops may be averaged over encoders and tasks, and
    what is left out and why.

    Left out is what does not beat its baselines, what has no drop, what is measured against the
    original's own answers, negative log-perplexity, of which a share is no share of a score, and an
    original score below 0.1, relative to which any drop is large.
    """
    kept, left_out = [], {}
    for index, cell in zip(cells.index, cells.to_dict("records"), strict=True):
        reason = _no_average(cell)
        kept += [] if reason else [index]
        if reason:
            left_out[f"{cell['encoder']} on {cell['task']}"] = reason
    return cells.loc[kept], [f"{what} ({reason})" for what, reason in left_out.items()]


def _no_average(cell: dict[str, Any]) -> str:
    if not cell["beats_baseline"]:
        return cell["reason"]
    if pandas.isna(cell["relative_drop"]):
        return "no relative drop"
    if cell["metric"] in UNLABELLED_METRICS:
        return "measured against its own answers"
    if cell["metric"] == "negative_log_perplexity":
        return f"no share of a {METRICS[cell['metric']]}"
    return f"an original below {NEAR_ZERO:g}" if cell["original"] < NEAR_ZERO else ""
