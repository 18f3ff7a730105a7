"""How a report's numbers were computed: tasks, text, versions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pandas

from papa.reporting.wording import (
    NOTHING,
    fraction_label,
    joined,
    metric_label,
    names_of,
    order_label,
    orders_matter,
)
from papa.reporting.written import WrittenTable
from papa.spec import StudySpec, TaskSpec

REPEATED = (
    "Run again with these versions on a machine of the same kind, the study gives the same scores "
    "to the last bit, whatever the number of workers, each of which computes in one thread; other "
    "processors, GPUs and versions add up in other orders, and scores may differ by their "
    "rounding."
)
_COMPUTING = ("torch", "transformers", "datasets", "numpy", "scikit-learn", "seqeval")
_COUNTS = {"rows": "Rows", "tokens": "Tokens", "texts_cut": "Texts cut", "words_cut": "Words cut"}


def plan_sentence(study: StudySpec, summary: pandas.DataFrame) -> str:
    """What was asked, in one sentence."""
    encoders = joined(summary["encoder"].unique())
    tasks = joined(task.name for task in study.tasks)
    constants = joined(entry.label for entry in study.constants)
    fractions = joined(
        fraction_label(fraction) for fraction in sorted(study.fractions, reverse=True)
    )
    orders = joined(order_label(order) for order in study.orders)
    by_order = orders_matter(study.fractions)
    order = f"; heads become constant in the order: {orders}" if by_order else ""
    return (
        f"How far does the score of {encoders} on {tasks} fall when attention heads stop depending "
        f"on the input? A share of {fractions} of the heads stays input-dependent; the others use "
        f"constant matrices ({constants}){order}."
    )


def task_table(study: StudySpec) -> WrittenTable:
    """Each task's source, layout and probe."""
    rows = [
        {
            "Task": f"{task.name}, probed by {task.own_probe}" if task.own_probe else task.name,
            "Source": _source(task),
            "Rows": f"{task.train_rows or 'all'} / {task.validation_rows or 'all'}",
            "Slots": str(task.slots),
            "Metric": metric_label({"metric": task.metric, "positive": _positive(task)}),
            "Learning rate": f"{task.probe.learning_rate:g}",
            "Batch": str(task.probe.batch_size),
            "Epochs": str(task.probe.epochs),
        }
        for task in study.tasks
    ]
    return WrittenTable.of("Tasks", rows)


def _positive(task: TaskSpec) -> str:
    """The positive class of F1, where the specification names it; else ""."""
    if task.metric != "f1":
        return ""
    return task.positive or (task.labels[1] if task.labels and len(task.labels) > 1 else "")


def _source(task: TaskSpec) -> str:
    source = task.source
    match source.kind:
        case "files":
            return f"{source.train.parent.name}/{source.train.name}"
        case "hub":
            return " ".join(part for part in (source.name, source.config, source.revision) if part)
        case _:
            return f"{source.name} (embedded)"


def unseen_table(results: pandas.DataFrame) -> WrittenTable:
    """The share of entries that validation rows read and the average never saw."""
    axes = ["encoder", "task", "constants"]
    replaced = results.dropna(subset="unseen_share").drop_duplicates(axes)
    rows = [
        {**names_of(row, axes), "Entries never seen": f"{100 * row['unseen_share']:.3f} %"}
        for row in replaced.to_dict("records")
    ]
    return WrittenTable.of("Unseen share", rows)


def own_heads(results: pandas.DataFrame) -> list[str]:
    """Which class of a task is which of a model's own head, in sentences."""
    if "classes" not in results:
        return []
    heads = results[results["classes"] != ""].drop_duplicates(["encoder", "task"])
    return [
        f"{row['encoder']} on {row['task']}: the classes of its own head: {row['classes']}."
        for row in heads.to_dict("records")
    ]


def corpus_table(corpora: Mapping[str, Mapping[str, Any]]) -> WrittenTable:
    """Rows and tokens of each corpus and what its layout cut off, training / validation."""
    rows = []
    for name, metadata in corpora.items():
        splits = {what: metadata.get(key, {}).values() for key, what in _COUNTS.items()}
        counts = {what: " / ".join(f"{one:,}" for one in own) for what, own in splits.items()}
        rows.append({"Corpus": name, **{what: own or NOTHING for what, own in counts.items()}})
    return WrittenTable.of("Text", rows)


def corpus_warnings(corpora: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The warnings of ``papa.corpora.labels`` on each corpus, in sentences."""
    return [
        f"Beware, {name}: {sentence}."
        for name, metadata in corpora.items()
        for sentence in metadata.get("notes", {}).get("warnings", ())
    ]


def versions() -> dict[str, str]:
    """Installed versions of what results may depend on."""
    installed = {}
    for package in ("papa-attention", *_COMPUTING):
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed
