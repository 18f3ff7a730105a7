"""The study's numbers as tables, for report and terminal: scores, drops, baselines, contrasts, head
orders; beside the paper's; and descriptions. Which drops are marked, as the original does not beat
its baselines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from rich.console import Group

from papa.errors import DataError
from papa.reporting.answers import answers
from papa.reporting.wording import (
    HEADINGS,
    MARK,
    NOTHING,
    WrittenTable,
    ends_label,
    fixed_caption,
    fraction_headings,
    fraction_label,
    lost_label,
    markdown_text,
    marked,
    mean_label,
    metric_label,
    names_of,
    nats_label,
    order_label,
    percent_label,
    score_label,
    varying,
)
from papa.scores.intervals import relative_drop
from papa.scores.order_comparison import GROUP
from papa.scores.summary import LINE, distinct_results, reason_sentence
from papa.spec.orders import Cell
from papa.spec.task import LOSS

REFERENCE_COLUMNS = (*LINE, "fraction", "score", "source")

_SCORES = (
    "mean over seeds ± 95 % interval over seeds and validation examples. Columns: share of heads "
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
    "*, better, worse: beyond chance. Seconds and evaluations (passes over the examples; of λ its "
    "epochs) are the ranking's over its seeds; –: no more than another order's row counts."
)
SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
_MEANS = "Means over heads, where a measure is of heads. ±: the 95 % interval over texts, at most."
_BEST = (
    "The share of words whose gold head is found, with its 95 % interval (Wilson), by the best "
    "head, picked in every other sentence and counted in the rest, and the reverse."
)


def score_tables(summary: pandas.DataFrame) -> list[WrittenTable]:
    """The summary, written out: scores, drops and contrasts of a row a line (encoder, task,
    constants, head order, study) and a column a fraction, and baselines; those that have rows. An
    axis with one value has no column (see ``fixed_caption``), but for constants.
    """
    metrics = list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))
    scored = metrics[0] if len(metrics) == 1 else "Score"
    axis = "study" if "study" in summary else "constants"
    others = summary[summary["contrast"].notna()]
    against = others.assign(**{axis: others["contrast_with"] + " − " + others[axis]})
    axes = [name for name in HEADINGS if name in (axis, *_names(others))]
    losses = summary["metric"] == LOSS
    drops = " ".join([_DROPS, *([_NATS] if losses.any() else []), *marks(summary)])
    note = ". ".join(filter(None, [fixed_caption(summary), f"{scored}: {_SCORES}"]))
    names = _names(summary)
    dagger = _dagger(summary)

    def written(label: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda cell: marked(label(cell), cell)

    tables = [
        _lines("Scores", summary, written(mean_label), names, note + dagger),
        _lines(
            "Drop" if losses.any() else "Relative drop", summary, written(lost_label), names, drops
        ),
        _baselines(summary),
        _lines("Contrasts", against, written(partial(ends_label, "contrast")), axes, _CONTRASTS),
    ]
    if summary["task"].nunique() > 1:
        tables.append(by_task(summary))
    return [table for table in tables if table.lines]


def summary_table(summary: pandas.DataFrame) -> Group:
    """The summary, for a terminal."""
    return Group(*(table.terminal() for table in score_tables(summary)))


def summary_markdown(summary: pandas.DataFrame) -> str:
    """What a study found, in sentences and tables, as Markdown."""
    sentences = "".join(f"- {markdown_text(one)}\n" for one in [*answers(summary), *marks(summary)])
    tables = [f"## {table.heading}\n\n{table.markdown}" for table in score_tables(summary)]
    return "\n".join([sentences, *tables])


def by_task(summary: pandas.DataFrame) -> WrittenTable:
    """In the paper's shape: a column a task; each encoder's original score once, averages first,
    and behind other constants the contrast with the average, or else the study's first kind.
    """
    studies = [own for _, own in summary.groupby("study", sort=False)] if "study" in summary else []
    cells = pandas.concat([distinct_results(own) for own in studies or [summary]])
    last = (cells["fraction"] < 1) * (1 + (cells["constants"] != "average"))
    axes = [axis for axis in ("constants", "study", "encoder") if axis in cells]
    kinds, *named = (pandas.factorize(cells[axis])[0] for axis in axes)
    axes, headings = [axis for axis in _names(cells) if axis != "task"], fraction_headings(summary)
    columns = cells.sort_values("task", key=lambda names: pandas.factorize(names)[0], kind="stable")
    tasks = {_column(cell): None for cell in columns.to_dict("records")}
    rows: dict[Any, dict[str, str]] = {}
    order = np.lexsort([cells["fraction"] == 0, kinds, last, *named])
    for cell in cells.iloc[order].to_dict("records"):
        result = Cell.of(cell).result()
        alike = {"constants": result.constants or NOTHING, "order": result.order or NOTHING}
        names = names_of({**cell, **alike}, axes)
        names["Input-dependent"] = headings[cell["fraction"]]
        row = rows.setdefault((*names.values(),), names | dict.fromkeys(tasks, NOTHING))
        score = mean_label(cell)
        if not math.isnan(cell["contrast"]):
            score += f"; Δ {ends_label('contrast', cell)}"
        row[_column(cell)] = marked(score, cell)
    first = summary["contrast_with"].max()
    notes = ["Mean scores ± 95 % intervals."]
    if first:
        notes.append(f"Δ: how much more {first} scores, paired by seed and example.")
    return WrittenTable("By task", [*rows.values()], " ".join(notes) + _dagger(summary))


def _dagger(summary: pandas.DataFrame) -> str:
    """What the mark means, where a row has it."""
    return f" {MARK}: drops tell nothing." if (summary["reason"] != "").any() else ""


def _names(summary: pandas.DataFrame) -> list[str]:
    """The axes that name a row: those with more than one value, and always the constants."""
    return [axis for axis in HEADINGS if axis == "constants" or axis in varying(summary)]


def _column(cell: Any) -> str:
    return f"{cell['task']} ({metric_label(cell)})"


def _lines(
    heading: str,
    summary: pandas.DataFrame,
    written: Callable[[dict[str, Any]], str],
    axes: list[str],
    note: str,
) -> WrittenTable:
    """A row for each line of the summary, a column for each fraction."""
    rows, columns = [], fraction_headings(summary)
    for _, line in summary.groupby([axis for axis in HEADINGS if axis in summary], sort=False):
        cells = {cell["fraction"]: written(cell) for cell in line.to_dict("records")}
        scores = {label: cells.get(fraction, NOTHING) for fraction, label in columns.items()}
        rows.append({**_named(line.iloc[0], axes, summary), **scores})
    return WrittenTable(heading, rows, note)


def _named(cell: Any, axes: list[str], summary: pandas.DataFrame) -> dict[str, str]:
    """What tells a row from others: its names, and its metric where there are several."""
    several = summary["metric"].nunique() > 1
    names = names_of(cell, axes)
    return names | ({"Metric": metric_label(cell)} if several else {})


def _baselines(summary: pandas.DataFrame) -> WrittenTable:
    """Each original score, its baselines, and whether it beats both."""
    groups = [axis for axis in ("encoder", "task", "study") if axis in summary]
    rows = []
    for _, cells in summary.groupby(groups, sort=False):
        cell = cells.iloc[0]
        if cells[["always_one_answer", "word_embeddings"]].isna().all(axis=None):
            continue
        full = cells[cells["fraction"] == 1]
        answer = f" ('{cell['one_answer']}')" if cell["one_answer"] else ""
        unbeaten = "no" if cell["reason"].startswith(("does not beat", "answers")) else "unknown"
        beaten = not pandas.isna(cell["beats_baseline"]) and cell["beats_baseline"]
        rows.append(
            {
                **_named(cell, varying(summary, groups) or ["encoder"], summary),
                "Original": NOTHING if full.empty else mean_label(full.iloc[0]),
                "One answer": score_label(cell["always_one_answer"]) + answer,
                "Word embeddings": ends_label("word_embeddings", cell),
                "Beaten": "yes" if beaten else unbeaten,
            }
        )
    return WrittenTable("Baselines", rows, _BASELINES)


def order_table(
    scores: pandas.DataFrame, pairs: pandas.DataFrame, summary: pandas.DataFrame
) -> WrittenTable:
    """A row for every order of each encoder, task and kind of constants, the best first, beside the
    study's first; ``pairs`` are every two of them, ``summary`` says which tasks are marked.
    """
    first = pairs["order"].iloc[0]
    axes = [axis for axis in GROUP if axis == "constants" or axis in varying(scores)]
    reasons = summary.drop_duplicates(GROUP).set_index(GROUP)["reason"]
    means = pairs[pairs["fraction"].isna()]
    ends = {"difference": -means["difference"], "low": -means["high"], "high": -means["low"]}
    turned = means.assign(order=means["other"], other=means["order"], **ends)
    each_way = pandas.concat([means, turned]).groupby([*GROUP, "order"], sort=False)
    rows = []
    for group, own in scores.groupby(GROUP, sort=False):
        for row in own.sort_values("mean", ascending=False, kind="stable").to_dict("records"):
            others, less, alike = each_way.get_group((*group, row["order"])), NOTHING, NOTHING
            for other in others[others["other"] == first].to_dict("records"):
                told = " *" if other["beyond_chance"] else ""
                less = score_label(other["difference"], other["low"], other["high"]) + told
                alike = _number(other["kendall_tau"], "z.2f")
            beyond = others.loc[others["beyond_chance"].astype(bool), "difference"]
            rows.append(
                {
                    **names_of(row, [*axes, "order"]),
                    "Mean score": marked(mean_label(row), {"reason": reasons[group]}),
                    f"Less {order_label(first)}": less,
                    "Kendall's τ with it": alike,
                    "Better than": str((beyond > 0).sum()),
                    "Worse than": str((beyond <= 0).sum()),
                    "Seconds": _number(row["seconds"], ",.1f"),
                    "Evaluations": _number(row["evaluations"], ",.0f"),
                }
            )
    return WrittenTable("Head orders", rows, _ORDERS)


def _number(value: float | None, form: str) -> str:
    return NOTHING if pandas.isna(value) else format(value, form)


def marks(summary: pandas.DataFrame) -> list[str]:
    """A sentence for every encoder and task that is marked."""
    groups = [axis for axis in ("study", "encoder", "task") if axis in summary]
    cells = summary[summary["reason"] != ""].drop_duplicates(groups)
    return [
        f"{MARK} {', '.join(str(cell[axis]) for axis in groups)}: {reason_sentence(cell)}, "
        "so its drops are inconclusive."
        for cell in cells.to_dict("records")
    ]


def read_reference(path: Path) -> pandas.DataFrame:
    """The paper's numbers for one study: a CSV with the columns ``REFERENCE_COLUMNS``, of which
    ``source`` says where the paper gives the number; lines that begin with ``#`` are notes.
    """
    texts, numbers = dict.fromkeys(("encoder", "source"), str), ("fraction", "score")
    try:
        reference = pandas.read_csv(path, comment="#", dtype=texts)[[*REFERENCE_COLUMNS]]
        return reference.astype(dict.fromkeys(numbers, float)).dropna(subset=numbers)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} is no table of the paper's numbers ({error}): give a CSV file with columns "
            f"{', '.join(REFERENCE_COLUMNS)}, a row for each number that the paper gives"
        ) from None


def comparison_table(summary: pandas.DataFrame, reference: pandas.DataFrame) -> WrittenTable:
    """The study's numbers beside the paper's, where it gives one; cells that share a result
    (``papa.spec.orders``) have one row. Encoders match by the last part of their names.
    """
    scores = {_matched_by(row): row["score"] for row in reference.to_dict("records")}
    rows, ours = [], distinct_results(summary)
    for row in ours.to_dict("records"):
        if (score := scores.get(_matched_by(row))) is None:
            continue
        original = scores.get(_matched_by({**row, "fraction": 1.0}), math.nan)
        result = Cell.of(row).result()
        shared = {"constants": result.constants or NOTHING, "order": result.order or NOTHING}
        rows.append(
            {
                **names_of({**row, **shared}, _names(summary)),
                "Input-dependent": fraction_label(row["fraction"]),
                "Score": mean_label(row),
                "Paper's score": score_label(score),
                "Difference": _number(row["mean"] - score, "+z.3f"),
                **_drops_compared(row, original, score),
            }
        )
    note = (
        f"The paper gives a number for {len(rows)} of the study's {len(ours)} results. "
        "Differences: ours less the paper's."
    )
    return WrittenTable("Beside the paper", rows, note)


def _drops_compared(row: Mapping[Any, Any], original: float, score: float) -> dict[str, str]:
    """A row's drop beside that of the paper's scores; of a loss in nats, which are no points."""
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


def _matched_by(row: Mapping[Any, Any]) -> Cell:
    """The result, with the last part of the encoder's name."""
    result = Cell.of(row).result()
    return replace(result, encoder=result.encoder.rstrip("/").rsplit("/", 1)[-1].lower())


def described_tables(frame: pandas.DataFrame) -> Iterator[WrittenTable]:
    """What descriptions are of, and a table for each, encoder and task; ``frame`` is as
    ``papa.describe`` gives it, that of a study with columns ``encoder`` and ``task``.
    """
    rows = []
    for record in frame.attrs["texts"]:
        heads = f"{record['constant_heads']} of {record['heads']}"
        if order := record.get("order"):
            heads += f" ({order_label(order)}, fraction {record['fraction']})"
        named = filter(None, (record.get(key) for key in ("encoder", "task", "source")))
        rows.append(
            {
                "Descriptions": ", ".join(record["descriptions"]),
                "Corpus": " · ".join(named) or "the texts given",
                **{
                    heading: f"{record[heading.lower().replace(' ', '_')]:,}"
                    for heading in ("Texts", "Tokens", "Left out")
                },
                "Constant heads": heads,
            }
        )
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    yield WrittenTable("What was looked at", rows, note)
    columns = [name for name in ("encoder", "task") if name in frame and frame[name].nunique() > 1]
    for key, own in frame.groupby([*columns, "description"], sort=False):
        what, found, note = "means by layer", _means, _MEANS
        if "best" in set(own["measure"]):
            what, found, note = "the best head for each relation", _best, _BEST
        told = pandas.DataFrame(found(own)).fillna(NOTHING).to_dict("records")
        yield WrittenTable(f"{' · '.join(key)}: {what}", told, note)


def _means(frame: pandas.DataFrame) -> list[dict[str, str]]:
    rows: dict[Any, dict[str, str]] = {}
    frame = frame.dropna(subset="value").assign(half=(frame["high"] - frame["low"]) / 2)
    means = frame.groupby(["measure", "layer", "attention"], sort=False)[["value", "half"]].mean()
    for (measure, layer, attention), number in means.iterrows():
        row = rows.setdefault((measure, layer), {"Measure": measure, "Layer": str(layer)})
        half = "" if math.isnan(number["half"]) else f" ± {number['half']:.3f}"
        row[attention] = f"{number['value']:z.3f}{half}"
    return [*rows.values()]


def _best(frame: pandas.DataFrame) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    words = frame[frame["measure"] == "words"].nlargest(SHOWN, "value", keep="first")
    best = words[["of", "value"]].merge(frame[frame["measure"] == "best"], on="of")
    for one in best.to_dict("records"):
        words_found = {"Relation": one["of"], "Words": f"{one['value_x']:.0f}"}
        head = "" if one["head"] is pandas.NA else f" {one['layer']}.{one['head']}"
        share = f"{one['value_y']:.2f} [{one['low']:.2f}, {one['high']:.2f}]{head}"
        rows.setdefault(one["of"], words_found)[one["attention"]] = share
    return [*rows.values()]
