"""The head orders of a study as a table."""

import pandas

from papa.reporting.wording import (
    NOTHING,
    WrittenTable,
    axis_labels,
    mean_label,
    metric_label,
    metric_labels,
    number_label,
    order_label,
    score_label,
    varying_axes,
    with_dagger,
)
from papa.scores.order_comparison import OrderComparison
from papa.spec.columns import GROUP

_ORDERS = (
    "*: significant; Better than, Worse than: the number of other orders, if significant. Seconds "
    "and evaluations (passes over the examples; for λ epochs) are those of the head scores, over "
    "all their seeds; –: none needed, counted at another order, or the order compared with."
)


def order_table(comparison: OrderComparison, summary: pandas.DataFrame) -> WrittenTable:
    """Return a row for every order of each encoder, task and kind of constants, the best first,
    with its difference to the study's first order. A single metric is in the heading; ``summary``
    is ``summary.csv``, for metrics and daggers.
    """
    scores = comparison.scores
    pairs = comparison.pairs
    first_order = pairs["order"].iloc[0]
    varying = varying_axes(scores)
    axes = [axis for axis in GROUP if axis == "constants" or axis in varying]
    cells = summary.drop_duplicates(GROUP).set_index(GROUP)
    metrics = metric_labels(summary)
    means = _both_directions(pairs[pairs["fraction"].isna()])
    comparisons_of_order = means.groupby([*GROUP, "order"], sort=False)
    rows = []
    for group, scores_of_group in scores.groupby(GROUP, sort=False):
        cell = cells.loc[group]
        metric = {"Metric": metric_label(cell)} if len(metrics) > 1 else {}
        best_first = scores_of_group.sort_values("mean", ascending=False, kind="stable")
        for row in best_first.to_dict("records"):
            comparisons = comparisons_of_order.get_group((*group, row["order"]))
            difference = NOTHING
            tau = NOTHING
            for pair in comparisons[comparisons["other"] == first_order].to_dict("records"):
                difference = score_label(pair["difference"], pair["low"], pair["high"])
                difference += " *" if pair["beyond_chance"] else ""
                tau = number_label(pair["kendall_tau"], "z.2f")
            is_significant = comparisons["beyond_chance"].astype(bool)
            significant = comparisons.loc[is_significant, "difference"]
            rows.append(
                {
                    **axis_labels(row, [*axes, "order"]),
                    **metric,
                    "Mean score": with_dagger(mean_label(row), cell),
                    f"Difference from {order_label(first_order)}": difference,
                    f"Kendall's τ with {order_label(first_order)}": tau,
                    "Better than": str((significant > 0).sum()),
                    "Worse than": str((significant <= 0).sum()),
                    "Seconds": number_label(row["seconds"], ",.1f"),
                    "Evaluations": number_label(row["evaluations"], ",.0f"),
                }
            )
    heading = f"Head orders ({metrics[0]})" if len(metrics) == 1 else "Head orders"
    return WrittenTable(heading, rows, _ORDERS)


def _both_directions(pairs: pandas.DataFrame) -> pandas.DataFrame:
    """Return comparisons, which are stored once, with their reverses: every order has a row for
    every other one.
    """
    reverse = pairs.assign(
        order=pairs["other"],
        other=pairs["order"],
        difference=-pairs["difference"],
        low=-pairs["high"],
        high=-pairs["low"],
    )
    return pandas.concat([pairs, reverse])
