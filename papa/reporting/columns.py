"""What every column of ``results.parquet`` and ``summary.csv`` is; docs/results.md explains
intervals and baselines.
"""

from __future__ import annotations

from typing import Any

_CELL = {
    "encoder": "the encoder's label",
    "task": "the task's name",
    "constants": (
        "the kind of constant matrices; after a colon the corpus averaged over, or what training "
        "started from"
    ),
    "order": "the head order",
    "fraction": "share of heads that stay input-dependent, as the study gives it",
}
_METRIC = {
    "metric": "what a score is",
    "positive": "the class that F1 is of; empty for other metrics",
}
_ONE_ANSWER = {
    "always_one_answer": "what always giving one answer scores, at best",
    "one_answer": "that answer; empty where it is no class",
}

INFLUENCE_COLUMNS = {
    "influence": "what the score loses without each validation row, in the split's order; a list",
    "one_answer_influence": "the same of always one answer",
    "word_embeddings_influence": "the same of word embeddings alone",
}
RESULT_COLUMNS = {
    **_CELL,
    "constant_heads": "how many heads are constant",
    "seed": "the probe's seed",
    "metric": _METRIC["metric"],
    "score": "on the validation split, after the last epoch",
    "seconds": "the seed's share of training and scoring",
    "unseen_share": "of the matrix entries that validation rows read, the share never seen before",
    "heads": "how many heads the encoder has, L·H",
    "positive": _METRIC["positive"],
    **_ONE_ANSWER,
    "word_embeddings": "what the probe scores on word embeddings alone, with the same seed",
    **INFLUENCE_COLUMNS,
}
"""Of ``results.parquet``: a row for every cell and seed. Cells that share a result have rows of
their own.
"""

SUMMARY_COLUMNS = {
    **_CELL,
    "share_of_heads": "the fraction in whole heads: 1/16 of 72 heads are 4, which is 0.0556",
    "constant_heads": RESULT_COLUMNS["constant_heads"],
    **_METRIC,
    "seeds": "how many seeds",
    "mean": "the mean score over seeds",
    "low": "lower end of its interval over seeds and validation examples",
    "high": "its upper end",
    "original": "mean score with every head input-dependent, over the same seeds",
    "difference": "s₁ - s_f, the mean over seeds that both have",
    "difference_low": "lower end of its interval over seeds and examples, both paired",
    "difference_high": "its upper end",
    "relative_drop": (
        "(s₁ - s_f) / |s₁|: that difference by the mean original's size; empty where it comes "
        "near 0"
    ),
    "drop_low": "lower end of its interval over seeds and examples, both paired",
    "drop_high": "its upper end",
    "contrast_with": "the first kind of constants; in a comparison, the first study",
    "contrast": "its mean score in the same cell less this one's",
    "contrast_low": "lower end of its interval over seeds and examples, both paired",
    "contrast_high": "its upper end",
    **_ONE_ANSWER,
    "word_embeddings": "what the probe scores on word embeddings alone, mean over seeds",
    "word_embeddings_low": "lower end of its interval over seeds and examples",
    "word_embeddings_high": "its upper end",
    "beats_baseline": "whether the original's differences from both baselines are above 0 by interval",  # noqa: E501
    "reason": "if not, why, or why nobody can tell",
}
"""Of ``summary.csv``: a row for every cell, over seeds."""

_EARLIER_NAMES = {"model": "encoder", "coverage": "unseen_share"}
"""What columns were called before tables named what they hold."""


def renamed(table: Any) -> Any:
    """A pandas table that an earlier version wrote, its columns called as this version
    calls them.
    """
    return table.rename(
        columns={old: new for old, new in _EARLIER_NAMES.items() if new not in table}
    )
