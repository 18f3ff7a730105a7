"""What every column of ``results.parquet`` and ``summary.csv`` is; docs/results.md tells more."""

from __future__ import annotations

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
    "classes": "which class of the task is which of the model's own head; empty for a probe",
    **_ONE_ANSWER,
    "word_embeddings": "what the probe scores on word embeddings alone, with the same seed",
    **INFLUENCE_COLUMNS,
}
"""Of ``results.parquet``: a row for every cell and seed, those with one result as well."""

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

ORDER_COLUMNS = {
    **{name: _CELL[name] for name in ("encoder", "task", "constants")},
    "order": "a head order",
    "other": "another",
    "fraction": f"{_CELL['fraction']}; empty for the mean score over all at which orders differ",
    "difference": "the score by the first order less that by the other",
    "low": "lower end of its interval over seeds and examples, both paired",
    "high": "its upper end",
    "p": "of the mean: one less the confidence at which its interval begins to hold 0",
    "p_holm": "that by Holm's rule, over all pairs with random orders, or all others",
    "beyond_chance": "of the mean: whether that is below .05",
    "kendall_tau": "of the mean: Kendall's τ of the two orders, the mean over seeds",
    "kept_by_both": "of the heads that stay input-dependent by the first order, the share that do by both",  # noqa: E501
    "kept_by_chance": "what random orders share on average",
}
"""Of ``orders.csv``, where a study has several head orders: rows for every two of them."""

ORDER_SCORE_COLUMNS = {
    **{name: _CELL[name] for name in ("encoder", "task", "constants", "order")},
    "mean": "the mean score over the fractions at which orders differ, and over seeds",
    "low": "lower end of its interval over seeds and examples",
    "high": "its upper end",
    "seconds": "of work that the order took, over all ranking seeds; empty where another counts it",
    "evaluations": "passes over the examples; of λ its epochs; likewise",
}
"""Of ``order_scores.csv``, a row for every order."""

HEAD_COLUMNS = {
    **{name: _CELL[name] for name in ("encoder", "task")},
    "method": "lambda, another method, or scores:NAME of the study's own",
    "layer": "from 0",
    "head": "from 0",
    "score": "the mean over the ranking's seeds; heads with small ones become constant first",
    "low": "lower end of its 95 % interval over seeds; empty where nobody knows",
    "high": "its upper end",
}
"""Of ``heads.parquet``: a row for every head and method."""
