"""A study's question and its answers, in sentences."""

from collections.abc import Mapping
from typing import Any

import pandas
from pandas.api.typing import SeriesGroupBy

from papa.ranking.head_scores import LambdaAgreement
from papa.ranking.orders import scoring_method
from papa.reporting.wording import (
    axis_labels,
    drop_label,
    fraction_label,
    fraction_phrase,
    interval_label,
    mean_label,
    metric_label,
    order_label,
    orders_matter,
    percent_label,
    score_label,
    varying_axes,
)
from papa.scores.levels import LEVEL
from papa.scores.order_comparison import RANDOM, fewest_random_lists
from papa.scores.summary import (
    ONE_ANSWER,
    WORDS,
    distinct_results,
    drops_over_tasks,
    inconclusive_clause,
)
from papa.spec import StudySpec
from papa.spec.columns import GROUP, LINE, PAIR
from papa.spec.study import CONTROL_SEEDS
from papa.spec.substitutes import entry_of
from papa.spec.task import LOSS

_POWER = (
    "where labels raise τ from .13 to .21, the test finds it in 35 % of simulated studies of 5 "
    "seeds, and in 80 % of 10"
)
"""The power of λ's control (``python -m benchmarks.certainty control``)."""
_COUNTS = {
    "rows": "rows",
    "tokens": "tokens",
    "texts_cut": "texts truncated",
    "words_cut": "words left out",
}
"""The counts of a corpus's metadata, and their names."""


def plan_sentence(study: StudySpec, summary: pandas.DataFrame) -> str:
    """Return the question of a study in words."""
    encoders = ", ".join(summary["encoder"].unique())
    tasks = ", ".join(task.name for task in study.tasks)
    substitutes = ", ".join(substitute.label for substitute in study.substitutes)
    fractions = ", ".join(map(fraction_label, sorted(study.keep, reverse=True)))
    orders = ""
    if orders_matter(study.keep):
        names = ", ".join(map(order_label, study.orders))
        orders = f"; heads become constant in the order: {names}"
    return (
        f"How far does the score of {encoders} on {tasks} fall when attention heads stop depending "
        f"on the input? A share of {fractions} of the heads stays input-dependent; the others "
        f"output a substitute ({substitutes}){orders}."
    )


def method_sentences(study: StudySpec, results: pandas.DataFrame) -> list[str]:
    """Return how a study was computed: a sentence for each substitute, method and baseline in it.

    Args:
        study: The study.
        results: ``results.parquet``, which says what baselines its tasks have.
    """
    no_matrices = [
        substitute.label
        for substitute in study.substitutes
        if entry_of(substitute.initial_kind).origin in ("outputs", "attention")
    ]
    kinds = {substitute.kind for substitute in study.substitutes}
    heads = {task.head for task in study.tasks}
    truncation = study.layout.one_text_truncation
    segment_ids = study.layout.segment_ids
    sentences = ["The weights of the model stay frozen."]
    if len(no_matrices) < len(study.substitutes):
        sentences.append(
            "The constant matrix of a head replaces its attention; rows are divided by their sum "
            "over the real slots."
        )
    if "trained" in kinds:
        sentences.append("Rows of trained matrices are divided by the sum of absolute entries.")
    if "average" in kinds:
        sentences.append(
            "An average matrix holds, for each pair of slots, the mean attention over the training "
            "texts in which both are real."
        )
    if no_matrices:
        sentences.append(f"Substitutes without matrices: {', '.join(no_matrices)}.")
    if orders_matter(study.keep) and "lambda" in map(scoring_method, study.orders):
        sentences.append(_lambda_sentence(study))
    if "probe" in heads:
        sentences.append(
            "A probe is trained on the frozen features for each cell and seed and scored on the "
            "validation split after its last epoch."
        )
    if "native" in heads:
        sentences.append("A native head is scored on the validation split without training.")
    if any(task.metric != LOSS for task in study.tasks):
        sentences.append(
            "Relative drop: (original − score) / |original|; its interval follows from differences "
            "paired by seed and example."
        )
    if results["always_one_answer"].notna().any():
        sentences.append("Baseline: the best single answer for every example.")
    if results["word_embeddings"].notna().any():
        sentences.append("Baseline: the same probe on the word embeddings alone.")
    if (truncation, segment_ids) != ("full", "follow"):
        sentences.append(
            f"As in the authors' code: one-text truncation {truncation}, segment ids {segment_ids}."
        )
    return sentences


def _lambda_sentence(study: StudySpec) -> str:
    """Return how λ was trained."""
    heads = {task.head for task in study.tasks}
    trained_with = "together with a probe"
    if "native" in heads:
        trained_with = "together with a probe or with the native head,"
    if heads == {"native"}:
        trained_with = "with the native head"
    epochs = study.ranking.epochs
    duration = f"{epochs} epochs" if epochs else "each task's own number of epochs"
    rows = f" on {study.ranking.rows} rows" if study.ranking.rows else ""
    seed_count = len(study.ranking_seeds)
    seeds = f"and averaged over {seed_count} seeds" if seed_count > 1 else "with one seed"
    return (
        "λ is the weight that mixes input-dependent and constant attention of a head, trained "
        f"{trained_with} for {duration}{rows}, {seeds}."
    )


def score_sentences(summary: pandas.DataFrame) -> list[str]:
    """Return a sentence for each encoder and task: the score with the fewest input-dependent heads,
    over all kinds of constants and, where they matter, head orders; for two encoders or more also
    ``mean_drops_sentences``. If the original does not beat its baselines, drops are called
    inconclusive.
    """
    cells = distinct_results(summary[summary["fraction"] == summary["fraction"].min()])
    originals = summary[summary["fraction"] == 1].drop_duplicates(PAIR).set_index(PAIR)
    sentences = []
    for key, cells_of_pair in cells.groupby(PAIR, sort=False):
        encoder, task = key
        first = cells_of_pair.iloc[0]
        original = f"{encoder} on {task}: {metric_label(first)}"
        if key in originals.index:
            original += f" {mean_label(originals.loc[key])} with every head input-dependent"
        clauses = [original]
        if first["reason"]:
            clauses.append(
                f"the cost of constant heads is inconclusive: {inconclusive_clause(first)}"
            )
        axes = varying_axes(cells_of_pair, ("constants", "order"))
        for cell in cells_of_pair.to_dict("records") if first["fraction"] < 1 else ():
            substitute = f" ({', '.join(axis_labels(cell, axes).values())})" if axes else ""
            score = f"{mean_label(cell)} {fraction_phrase(cell['fraction'])}{substitute}"
            clauses.append(score + ("" if cell["reason"] else f", drop {drop_label(cell)}"))
        if not pandas.isna(first["always_one_answer"]):
            answer = f"always '{first['one_answer']}'" if first["one_answer"] else ONE_ANSWER
            baselines = f"{answer} scores {score_label(first['always_one_answer'])}"
            if not pandas.isna(first["word_embeddings"]):
                baselines += f", {WORDS} {interval_label('word_embeddings', first)}"
            clauses.append(baselines)
        sentences.append(f"{'; '.join(clauses)}.")
    return sentences + mean_drops_sentences(summary)


def mean_drops_sentences(summary: pandas.DataFrame) -> list[str]:
    """Compare encoders by their drops over tasks, in at most one sentence.

    For two or more encoders, the sentence gives each one's mean drop over the tasks and the drop of
    its mean score. Where tasks are left out and fewer than two encoders have a mean, it gives the
    reasons instead. For a single encoder there is no sentence.
    """
    points, left_out = drops_over_tasks(summary)
    without = "".join(f"; left out: {task} ({reason})" for task, reason in left_out.items())
    if len(points) < 2:
        has_encoders = summary["encoder"].nunique() > 1
        if left_out and has_encoders:
            return [f"No mean drop compares the encoders{without}."]
        return []
    drops = (
        f"{point['encoder']} {percent_label(point['relative_drop'])} and "
        f"{percent_label(point['drop_of_means'])}"
        for point in points.to_dict("records")
    )
    return [
        f"The mean relative drop over tasks {fraction_phrase(summary['fraction'].min())} "
        f"({summary['constants'].iloc[0]}), and the drop of the mean score: "
        f"{', '.join(drops)}{without}."
    ]


def certainty_sentences(agreement: LambdaAgreement) -> str:
    """Return in words whether seeds agree significantly on λ's order and its constant heads."""
    objective = agreement.get("objective")
    trained_on = f" λ was trained on {objective}." if objective else ""
    if "is_significant" not in agreement:
        seeds = "the same for every seed" if agreement["seeds"] > 1 else "from one seed"
        return f"λ is {seeds}: its certainty is unknown.{trained_on}"
    shares = [
        f"{100 * share['share']:.0f} % at {fraction_label(share['fraction'])} (by chance "
        f"{100 * share['by_chance']:.0f} %{'' if share['is_significant'] else ', not significant'})"
        for share in agreement["shared"]
    ]
    shared = f"; of the constant heads two seeds share {', '.join(shares)}" if shares else ""
    verdict = "agree significantly" if agreement["is_significant"] else "do not agree significantly"
    return (
        f"The head orders by λ of {agreement['seeds']} seeds {verdict}: Kendall's τ is "
        f"{agreement['kendall_tau']:z.2f} between two of them (of random orders below "
        f"{agreement['tau_by_chance']:.2f} in 95 % of studies), and λ of "
        f"{agreement['significant_heads']} of {agreement['heads']} "
        f"{agreement.get('units', 'heads')} differs significantly from .5 (by chance "
        f"{LEVEL * agreement['heads']:.0f}){shared}.{_control_sentences(agreement)}{trained_on}"
    )


def _control_sentences(agreement: LambdaAgreement) -> str:
    """Return what the control (λ on shuffled labels) says about the agreement of seeds; "" if they
    do not agree.
    """
    if not agreement["is_significant"]:
        return ""
    if not agreement["distinct_rows"]:
        return " Seeds share their rows, and would also agree on labels without meaning."
    rows = " No two seeds share a row."
    if agreement.get("label_free"):
        return f"{rows} No labels were read."
    if agreement["control"] is None:
        return (
            f"{rows} To learn whether the order follows from the labels, train λ on shuffled "
            f"labels, too, with {CONTROL_SEEDS} seeds or more."
        )
    tau, is_informative = agreement["control"]
    control = f"{rows} On the same rows with shuffled labels τ is {tau:z.2f}"
    if is_informative:
        return f"{control}, significantly less, so the order is informative."
    return f"{control}, not significantly less: {_POWER}."


def orders_note(pairs: pandas.DataFrame) -> str:
    """Return in words how head orders were compared, and how many differences are significant."""
    means = pairs[pairs["fraction"].isna()]
    fractions = sorted(pairs["fraction"].dropna().unique(), reverse=True)
    with_random = means[(means["order"] == RANDOM) | (means["other"] == RANDOM)]
    lists = ""
    if len(with_random):
        needed = fewest_random_lists(int(with_random.groupby(GROUP).size().max()))
        lists = (
            f" A significant difference from random orders takes {needed} random lists, one a seed."
        )
    return (
        f"Of {len(means)} differences between two head orders {means['beyond_chance'].sum()} are "
        "significant at 5 %, by Holm's rule over the pairs with random orders, and over all other "
        "pairs, of one encoder, task and kind of constants. They are of mean scores over "
        f"{', '.join(map(fraction_label, fractions))}, paired by seed and example.{lists}"
    )


def corpus_facts(
    results: pandas.DataFrame, corpora: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return lines of the report's list of facts, by heading.

    They are the rows and tokens of each corpus and how many texts were truncated, training /
    validation; and the share of matrix entries that validation rows read and the average never
    observed.
    """
    lines = {}
    for name, metadata in corpora.items():
        counts_of_corpus = []
        for key, label in _COUNTS.items():
            by_split = metadata.get(key, {})
            if by_split:
                numbers = " / ".join(f"{count:,}" for count in by_split.values())
                counts_of_corpus.append(f"{numbers} {label}")
        lines[f"Rows of {name} (training / validation)"] = ", ".join(counts_of_corpus)
    for row in results.dropna(subset="unseen_share").drop_duplicates(GROUP).to_dict("records"):
        share = f"{100 * row['unseen_share']:.3f} % of the entries read"
        lines[f"Never observed: {' · '.join(row[axis] for axis in GROUP)}"] = share
    return lines


def seeds_differ(results: pandas.DataFrame) -> bool:
    """Return whether probe seeds change any score; they do not change that of a native head."""
    return bool((_scores_by_cell(results).nunique() > 1).any())


def seed_warnings(results: pandas.DataFrame) -> list[str]:
    """Return a warning if a cell has two seeds with different scores, as Student's t over two is so
    wide that intervals say little.
    """
    scores = _scores_by_cell(results)
    if not ((scores.size() == 2) & (scores.nunique() == 2)).any():
        return []
    return [
        "Beware: intervals over two probe seeds are 12.7 standard errors wide on either side, over "
        "three 4.3, over five 2.8: more probe seeds make them narrower."
    ]


def _scores_by_cell(results: pandas.DataFrame) -> SeriesGroupBy:
    return results.groupby([*LINE, "fraction"])["score"]


def examples_sentence(training: int, validation: int) -> str:
    """Return how many examples are scored, and how many averages and head scores are from."""
    return (
        f"Scores are of {validation:,} validation examples; averages, head scores and training "
        f"take up to {training:,} training examples."
    )


def corpus_warnings(
    results: pandas.DataFrame, corpora: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the warnings of ``papa.text.rows`` on each corpus, and sentences that say which class
    of a task is which class of a native head.
    """
    warnings = [
        f"Beware, {name}: {sentence}."
        for name, metadata in corpora.items()
        for sentence in metadata.get("notes", {}).get("warnings", ())
    ]
    classes = results[results["classes"] != ""].drop_duplicates(PAIR)
    return warnings + [
        f"{row['encoder']} on {row['task']}: classes of the native head: {row['classes']}."
        for row in classes.to_dict("records")
    ]
