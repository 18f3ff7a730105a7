"""A study's results as tables, for the report and the terminal: scores, drops, baselines,
contrasts, head orders, the paper's numbers; and tables of descriptions.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
from rich.console import Group

from papa.errors import DataError
from papa.reporting.answers import answers
from papa.reporting.wording import (
    HEADINGS,
    MARK,
    NOTHING,
    Row,
    WrittenTable,
    axis_labels,
    drop_label,
    fixed_caption,
    fraction_headings,
    fraction_label,
    interval_label,
    markdown_text,
    marked,
    mean_label,
    metric_label,
    nats_label,
    order_label,
    percent_label,
    score_label,
    varying_axes,
)
from papa.scores.intervals import relative_drop
from papa.scores.order_comparison import GROUP
from papa.scores.summary import LINE, distinct_results, reason_sentence
from papa.spec.orders import Cell
from papa.spec.task import LOSS

REFERENCE_COLUMNS = (*LINE, "fraction", "score", "source")

_SCORES = (
    "Mean over seeds ± 95 % interval over seeds and validation examples. Columns: share of heads "
    "that stay input-dependent."
)
_DROPS = "Against every head input-dependent, ± 95 % interval, paired by seed and example."
_NATS = "Of a loss: the difference in nats, and the ratio of perplexities (PPL)."
_BASELINES = (
    "One answer: the best score of a single answer for every validation example. Word embeddings: "
    "the same probe on word embeddings alone (a native head has no such baseline). An original "
    "beats them if the intervals of its differences from them, paired by seed and example, are "
    "above 0."
)
_CONTRASTS = (
    "The score of the first less that of another, with as many heads constant: mean ± 95 % "
    "interval, paired by seed and example."
)
_ORDERS = (
    "*, better, worse: significant. Seconds and evaluations (passes over the examples; for λ "
    "epochs) are those of the head scores over their seeds; –: counted in the row of another "
    "order."
)
MOST_RELATIONS = 15
"""The most relations in a table: the frequent ones."""
_MEANS = (
    "Means over heads for measures of heads. ±: largest half-width of their 95 % intervals "
    "over texts."
)
_BEST = (
    "Share of words whose gold head is found, with its 95 % interval (Wilson), for the best "
    "head, chosen on every second sentence and counted on the others, and vice versa."
)


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """Return the tables of a summary that have rows: scores, drops and contrasts with a row a line
    (encoder, task, constants, head order, study) and a column a fraction, baselines, and scores by
    task. An axis with one value has no column (see ``fixed_caption``), except for constants; a
    single metric is in the headings, as tables printed as Markdown have no notes.
    """
    axis = "study" if "study" in summary else "constants"
    contrasts = summary[summary["contrast"].notna()]
    contrasts = contrasts.assign(**{axis: contrasts["contrast_with"] + " − " + contrasts[axis]})
    contrast_axes = [name for name in HEADINGS if name in (axis, *_row_axes(contrasts))]
    has_losses = bool((summary["metric"] == LOSS).any())
    drop_note = " ".join([_DROPS, *([_NATS] if has_losses else []), *marks(summary)])
    score_note = ". ".join(filter(None, [fixed_caption(summary), _SCORES]))
    axes = _row_axes(summary)
    tables = [
        _table_of_lines(
            "Scores",
            summary,
            lambda cell: marked(mean_label(cell), cell),
            axes,
            score_note + _mark_note(summary),
        ),
        _table_of_lines(
            "Drop" if has_losses else "Relative drop",
            summary,
            lambda cell: marked(drop_label(cell), cell),
            axes,
            drop_note,
        ),
        _baselines(summary),
        _table_of_lines(
            "Contrasts",
            contrasts,
            lambda cell: marked(interval_label("contrast", cell), cell),
            contrast_axes,
            _CONTRASTS,
        ),
    ]
    metrics = _metric_labels(summary)
    if len(metrics) == 1:
        tables = [replace(table, heading=f"{table.heading} ({metrics[0]})") for table in tables]
    if summary["task"].nunique() > 1:
        tables.append(by_task(summary))
    return [table for table in tables if table.lines]


def summary_table(summary: pandas.DataFrame) -> Group:
    """Return the tables of a summary for a terminal."""
    return Group(*(table.terminal() for table in score_tables(summary)))


def summary_markdown(summary: pandas.DataFrame) -> str:
    """Return the results of a study in sentences and tables, as Markdown."""
    sentences = [*answers(summary), *marks(summary)]
    bullets = "".join(f"- {markdown_text(sentence)}\n" for sentence in sentences)
    tables = [f"## {table.titled_markdown}" for table in score_tables(summary)]
    return "\n".join([bullets, *tables])


def by_task(summary: pandas.DataFrame) -> WrittenTable:
    """Return the table in the paper's shape, with a column a task: each encoder's original score
    once, then the average, then other constants with their contrast with the average (or else with
    the study's first kind).
    """
    studies = [summary]
    if "study" in summary:
        studies = [frame for _, frame in summary.groupby("study", sort=False)]
    cells = pandas.concat([distinct_results(study) for study in studies])
    axes = [axis for axis in _row_axes(cells) if axis != "task"]
    headings = fraction_headings(summary)
    tasks = cells.sort_values("task", key=_first_occurrence, kind="stable")
    task_columns = [_task_heading(cell) for cell in tasks.to_dict("records")]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells.iloc[_table_order(cells)].to_dict("records"):
        labels = axis_labels({**cell, **_shared_labels(cell)}, axes)
        labels["Input-dependent"] = headings[cell["fraction"]]
        empty_row = labels | dict.fromkeys(task_columns, NOTHING)
        row = rows.setdefault(tuple(labels.values()), empty_row)
        score = mean_label(cell)
        if not math.isnan(cell["contrast"]):
            score += f"; Δ {interval_label('contrast', cell)}"
        row[_task_heading(cell)] = marked(score, cell)
    reference = summary["contrast_with"].max()
    notes = ["Mean scores ± 95 % intervals."]
    if reference:
        notes.append(f"Δ: how much more {reference} scores, paired by seed and example.")
    return WrittenTable("By task", [*rows.values()], " ".join(notes) + _mark_note(summary))


def _first_occurrence(names: pandas.Series) -> np.ndarray:
    """Return a number for each name, which sorts names by their first occurrence."""
    numbers: np.ndarray = pandas.factorize(names)[0]
    return numbers


def _table_order(cells: pandas.DataFrame) -> np.ndarray:
    """Return the order of the rows by task: of each study and encoder the original, the average,
    then other constants, each with all heads constant last.
    """
    # 0 of originals, 1 of averages, 2 of other constants.
    group = (cells["fraction"] < 1) * (1 + (cells["constants"] != "average"))
    outer_axes = [axis for axis in ("study", "encoder") if axis in cells]
    # np.lexsort sorts by its last key first.
    return np.lexsort(
        [
            cells["fraction"] == 0,
            _first_occurrence(cells["constants"]),
            group,
            *(_first_occurrence(cells[axis]) for axis in outer_axes),
        ]
    )


def _shared_labels(cell: Row) -> dict[str, str]:
    """Return the constants and the order of a cell's result, a dash where it depends on neither."""
    canonical = Cell.from_row(cell).canonical()
    return {"constants": canonical.constants or NOTHING, "order": canonical.order or NOTHING}


def _mark_note(summary: pandas.DataFrame) -> str:
    """Return what the mark means, if a row has it."""
    return f" {MARK}: drops are inconclusive." if (summary["reason"] != "").any() else ""


def _row_axes(summary: pandas.DataFrame) -> list[str]:
    """Return the axes that name a row: those with more than one value, and always constants."""
    varying = varying_axes(summary)
    return [axis for axis in HEADINGS if axis == "constants" or axis in varying]


def _task_heading(cell: Row) -> str:
    return f"{cell['task']} ({metric_label(cell)})"


def _table_of_lines(
    heading: str,
    summary: pandas.DataFrame,
    cell_text: Callable[[Row], str],
    axes: list[str],
    note: str,
) -> WrittenTable:
    """Return a table with a row for each line of the summary, a column for each fraction."""
    rows = []
    columns = fraction_headings(summary)
    for _, line in summary.groupby([axis for axis in HEADINGS if axis in summary], sort=False):
        texts = {cell["fraction"]: cell_text(cell) for cell in line.to_dict("records")}
        columns_of_row = {
            label: texts.get(fraction, NOTHING) for fraction, label in columns.items()
        }
        rows.append({**_row_labels(line.iloc[0], axes, summary), **columns_of_row})
    return WrittenTable(heading, rows, note)


def _row_labels(cell: Row, axes: list[str], summary: pandas.DataFrame) -> dict[str, str]:
    """Return what names a row: its axes, and its metric if the summary has two or more."""
    labels = axis_labels(cell, axes)
    if len(_metric_labels(summary)) > 1:
        labels["Metric"] = metric_label(cell)
    return labels


def _metric_labels(summary: pandas.DataFrame) -> list[str]:
    """Return the metrics of a summary in words, each once."""
    return list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))


def _baselines(summary: pandas.DataFrame) -> WrittenTable:
    """Return a table of each original score, its baselines, and whether it beats both."""
    groups = [axis for axis in ("encoder", "task", "study") if axis in summary]
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        original = cells[cells["fraction"] == 1]
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        if not pandas.isna(cell["beats_baseline"]) and cell["beats_baseline"]:
            beaten = "yes"
        elif cell["reason"].startswith(("does not beat", "answers")):
            beaten = "no"
        else:
            beaten = "unknown"
        rows.append(
            {
                **_row_labels(cell, varying_axes(summary, groups) or ["encoder"], summary),
                "Original": NOTHING if original.empty else mean_label(original.iloc[0]),
                "One answer": score_label(cell["always_one_answer"]) + answer,
                "Word embeddings": interval_label("word_embeddings", cell),
                "Beaten": beaten,
            }
        )
    return WrittenTable("Baselines", rows, _BASELINES)


def order_table(
    scores: pandas.DataFrame, pairs: pandas.DataFrame, summary: pandas.DataFrame
) -> WrittenTable:
    """Return a row for every order of each encoder, task and kind of constants, the best first,
    with its difference to the study's first order.

    Args:
        scores: ``order_scores.csv``.
        pairs: ``orders.csv``, the comparisons of every two orders.
        summary: says which tasks are marked.
    """
    first_order = pairs["order"].iloc[0]
    varying = varying_axes(scores)
    axes = [axis for axis in GROUP if axis == "constants" or axis in varying]
    reasons = summary.drop_duplicates(GROUP).set_index(GROUP)["reason"]
    means = pairs[pairs["fraction"].isna()]
    # Every pair is stored once: with its reverse, each order has a row for every other order.
    reverse = means.assign(
        order=means["other"],
        other=means["order"],
        difference=-means["difference"],
        low=-means["high"],
        high=-means["low"],
    )
    comparisons_of_order = pandas.concat([means, reverse]).groupby([*GROUP, "order"], sort=False)
    rows = []
    for group, scores_of_group in scores.groupby(GROUP, sort=False):
        best_first = scores_of_group.sort_values("mean", ascending=False, kind="stable")
        for row in best_first.to_dict("records"):
            comparisons = comparisons_of_order.get_group((*group, row["order"]))
            difference = NOTHING
            tau = NOTHING
            for comparison in comparisons[comparisons["other"] == first_order].to_dict("records"):
                difference = score_label(
                    comparison["difference"], comparison["low"], comparison["high"]
                )
                difference += " *" if comparison["beyond_chance"] else ""
                tau = _number(comparison["kendall_tau"], "z.2f")
            is_significant = comparisons["beyond_chance"].astype(bool)
            significant = comparisons.loc[is_significant, "difference"]
            rows.append(
                {
                    **axis_labels(row, [*axes, "order"]),
                    "Mean score": marked(mean_label(row), {"reason": reasons[group]}),
                    f"Less {order_label(first_order)}": difference,
                    "Kendall's τ with it": tau,
                    "Better than": str((significant > 0).sum()),
                    "Worse than": str((significant <= 0).sum()),
                    "Seconds": _number(row["seconds"], ",.1f"),
                    "Evaluations": _number(row["evaluations"], ",.0f"),
                }
            )
    return WrittenTable("Head orders", rows, _ORDERS)


def _number(value: float | None, format_spec: str) -> str:
    return NOTHING if pandas.isna(value) else format(value, format_spec)


def marks(summary: pandas.DataFrame) -> list[str]:
    """Return a sentence for every encoder and task that is marked."""
    groups = [axis for axis in ("study", "encoder", "task") if axis in summary]
    cells = summary[summary["reason"] != ""].drop_duplicates(groups)
    return [
        f"{MARK} {', '.join(str(cell[axis]) for axis in groups)}: {reason_sentence(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]


def read_reference(path: Path) -> pandas.DataFrame:
    """Read the paper's numbers for one study: a CSV with the columns ``REFERENCE_COLUMNS``, of
    which ``source`` says where the paper has the number; lines that begin with ``#`` are notes.
    """
    # An encoder may be called "1", and a source be a page.
    text_columns = {"encoder": str, "source": str}
    try:
        reference = pandas.read_csv(path, comment="#", dtype=text_columns)[[*REFERENCE_COLUMNS]]
        reference = reference.astype({"fraction": float, "score": float})
        return reference.dropna(subset=["fraction", "score"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read as the paper's numbers ({error}): give a CSV file with "
            f"the columns {', '.join(REFERENCE_COLUMNS)}, one row per number"
        ) from None


def comparison_table(summary: pandas.DataFrame, reference: pandas.DataFrame) -> WrittenTable:
    """Return the study's numbers beside the paper's, for results that the paper has; cells that
    share a result (``papa.spec.orders``) have one row. Encoders match by the last component of
    their names.
    """
    paper_scores = {_match_key(row): row["score"] for row in reference.to_dict("records")}
    rows = []
    results = distinct_results(summary)
    for row in results.to_dict("records"):
        score = paper_scores.get(_match_key(row))
        if score is None:
            continue
        original = paper_scores.get(_match_key({**row, "fraction": 1.0}), math.nan)
        rows.append(
            {
                **axis_labels({**row, **_shared_labels(row)}, _row_axes(summary)),
                "Input-dependent": fraction_label(row["fraction"]),
                "Score": mean_label(row),
                "Paper's score": score_label(score),
                "Difference": _number(row["mean"] - score, "+z.3f"),
                **_drops_compared(row, original, score),
            }
        )
    note = (
        f"The paper has a number for {len(rows)} of the study's {len(results)} results. "
        "Differences: the study's number less the paper's."
    )
    return WrittenTable("Beside the paper", rows, note)


def _drops_compared(row: Row, original: float, score: float) -> dict[str, str]:
    """Return a row's drop beside that of the paper's scores; of a loss in nats."""
    if row["metric"] == LOSS:
        return {
            "Drop": marked(nats_label(row["difference"]), row),
            "Paper's drop": nats_label(original - score),
            "Difference (points)": NOTHING,
        }
    drop = relative_drop(original, score)
    return {
        "Drop": marked(percent_label(row["relative_drop"]), row),
        "Paper's drop": percent_label(drop),
        "Difference (points)": _number(100 * (row["relative_drop"] - drop), "+z.1f"),
    }


def _match_key(row: Row) -> Cell:
    """Return the result of a row, with the last component of the encoder's name."""
    cell = Cell.from_row(row).canonical()
    return replace(cell, encoder=cell.encoder.rstrip("/").rsplit("/", 1)[-1].lower())


def described_tables(frame: pandas.DataFrame) -> Iterator[WrittenTable]:
    """Yield a table of the texts in a frame of ``papa.describe``, then one for each description."""
    (record,) = frame.attrs["texts"]
    row = {
        "Descriptions": ", ".join(record["descriptions"]),
        "Corpus": record.get("source", "texts of the call"),
        "Texts": f"{record['texts']:,}",
        "Tokens": f"{record['tokens']:,}",
        "Left out": f"{record['left_out']:,}",
        "Constant heads": f"{record['constant_heads']} of {record['heads']}",
    }
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    yield WrittenTable("Texts", [row], note)
    for name, description in frame.groupby("description", sort=False):
        if "best" in set(description["measure"]):
            title = "the best head for each relation"
            table_rows = _best_heads(description)
            note = _BEST
        else:
            title = "means by layer"
            table_rows = _layer_means(description)
            note = _MEANS
        # Rows may lack columns that others have.
        lines = pandas.DataFrame(table_rows).fillna(NOTHING).to_dict("records")
        yield WrittenTable(f"{name}: {title}", lines, note)


def _layer_means(frame: pandas.DataFrame) -> list[dict[str, str]]:
    """Return a row a measure and layer, with a column for each attention."""
    rows: dict[tuple[str, int], dict[str, str]] = {}
    frame = frame.dropna(subset="value").assign(half=(frame["high"] - frame["low"]) / 2)
    means = frame.groupby(["measure", "layer", "attention"], sort=False)[["value", "half"]].mean()
    for (measure, layer, attention), number in means.iterrows():
        row = rows.setdefault((measure, layer), {"Measure": measure, "Layer": str(layer)})
        half = "" if math.isnan(number["half"]) else f" ± {number['half']:.3f}"
        row[attention] = f"{number['value']:z.3f}{half}"
    return [*rows.values()]


def _best_heads(frame: pandas.DataFrame) -> list[dict[str, str]]:
    """Return a row for each of the most frequent relations, with a column for each attention."""
    rows: dict[str, dict[str, str]] = {}
    words = frame[frame["measure"] == "words"].nlargest(MOST_RELATIONS, "value", keep="first")
    words = words[["of", "value"]].rename(columns={"value": "words"})
    best = words.merge(frame[frame["measure"] == "best"], on="of")
    for record in best.to_dict("records"):
        relation = {"Relation": record["of"], "Words": f"{record['words']:.0f}"}
        head = "" if record["head"] is pandas.NA else f" {record['layer']}.{record['head']}"
        share = f"{record['value']:.2f} [{record['low']:.2f}, {record['high']:.2f}]{head}"
        rows.setdefault(record["of"], relation)[record["attention"]] = share
    return [*rows.values()]
