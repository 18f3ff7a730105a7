"""How a report's numbers were computed: tasks, unseen share, truncation, λ, versions."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pandas

from papa.reporting.wording import (
    NOTHING,
    fraction_label,
    joined,
    metric_label,
    order_label,
    orders_matter,
)
from papa.reporting.written import WrittenTable
from papa.spec import StudySpec, TaskSpec

_PACKAGES = (
    "papa-attention",
    "torch",
    "transformers",
    "datasets",
    "numpy",
    "scikit-learn",
    "seqeval",
)
_CORPUS_COUNTS = {
    "rows": "Rows",
    "tokens": "Tokens",
    "texts_cut": "Texts cut",
    "words_cut": "Words cut",
}


def plan_sentence(study: StudySpec, summary: pandas.DataFrame) -> str:
    """What was asked, in one sentence."""
    encoders = joined(summary["encoder"].unique())
    tasks = joined(task.name for task in study.tasks)
    constants = joined(entry.label for entry in study.constants)
    fractions = joined(
        fraction_label(fraction) for fraction in sorted(study.fractions, reverse=True)
    )
    orders = joined(order_label(order) for order in study.orders)
    order = (
        f"; heads become constant in the order: {orders}" if orders_matter(study.fractions) else ""
    )
    return (
        f"How far does the score of {encoders} on {tasks} fall when attention heads stop depending "
        f"on the input? A share of {fractions} of the heads stays input-dependent; the others use "
        f"constant matrices ({constants}){order}."
    )


def task_table(study: StudySpec) -> WrittenTable:
    """Each task's source, layout and probe."""
    headings = ["Task", "Source", "Rows", "Slots", "Metric", "Learning rate", "Batch", "Epochs"]
    rows = []
    for task in study.tasks:
        rows.append(
            [
                f"{task.name}, probed by {task.own_probe}" if task.own_probe else task.name,
                _source(task),
                f"{task.train_rows or 'all'} / {task.validation_rows or 'all'}",
                str(task.slots),
                metric_label({"metric": task.metric, "positive": _positive(task)}),
                f"{task.probe.learning_rate:g}",
                str(task.probe.batch_size),
                str(task.probe.epochs),
            ]
        )
    return WrittenTable("Tasks", headings, rows)


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
    replaced = results.dropna(subset="unseen_share").groupby(
        ["encoder", "task", "constants"], sort=False
    )
    shares = replaced["unseen_share"].first().items()
    rows = [[*key, f"{100 * share:.3f} %"] for key, share in shares]
    headings = ["Encoder", "Task", "Constants", "Entries never seen"]
    return WrittenTable("Unseen share", headings, rows)


def corpus_table(corpora: Mapping[str, Mapping[str, Any]]) -> WrittenTable:
    """Rows and tokens of each corpus and what its layout cut off, training / validation."""
    rows = []
    for name, metadata in corpora.items():
        counts = [metadata.get(key, {}) for key in _CORPUS_COUNTS]
        rows.append(
            [
                name,
                *(
                    " / ".join(f"{count:,}" for count in split.values()) or NOTHING
                    for split in counts
                ),
            ]
        )
    return WrittenTable("Text", ["Corpus", *_CORPUS_COUNTS.values()], rows)


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
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
