"""What ``papa check``, ``papa models`` and ``papa tasks`` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Column

from flows.check import Checked
from flows.terminal import print_rows, print_table, say
from papa.corpora.preview import Preview
from papa.spec import HubSource
from papa.spec.file import registry
from papa.study.inputs import StudyInputs, named_texts

_WIDE = 110
"""Columns from which on data sets are shown with their owners."""


def show_models(console: Console) -> None:
    """Print the encoders that a study can have, and the models whose heads can be replaced in
    place.
    """
    from papa.ablation import TESTED
    from papa.encoders.reference import EMBEDDED
    from papa.encoders.supported import FAMILIES

    hub = f"Any hub name or local folder of these; embedded: {EMBEDDED}"
    ablated = "with papa.ablated(model, heads, by=…): any task's head"
    for heading, models, caption in (("Family", FAMILIES, hub), ("In place", TESTED, ablated)):
        rows = ((model.name, ", ".join(model.model_types), model.note) for model in models)
        print_table(console, (heading, "Architectures", "Note"), rows, caption=caption)


def show_tasks(console: Console) -> None:
    """Print the tasks known by name: a table in a terminal, elsewhere values parted by tabs."""
    from papa.reporting.wording import METRICS

    headings = ("Task", "Kind", "Metric", "Slots", "Rate", "Batch", "Epochs", "Source")
    registered = sorted(registry().items())
    if not console.is_terminal:
        rows = (_task_row(name, task, task["metric"], owner=True) for name, task in registered)
        print_rows(console, [headings, *rows])
        return
    wide = console.width >= _WIDE
    rows = (_task_row(name, task, METRICS[task["metric"]], owner=wide) for name, task in registered)
    columns = *headings[:-1], Column(headings[-1], overflow="fold")
    print_table(console, columns, rows, box=SIMPLE, padding=(0, 1, 0, 0))


def _task_row(name: str, task: Mapping[str, Any], metric: str, *, owner: bool) -> tuple[str, ...]:
    source, probe = task["source"], task["probe"]
    named = "/".join(str(source[key]) for key in ("name", "config") if source.get(key))
    where = named or source["kind"]
    return (
        name,
        task["kind"],
        metric,
        str(task["slots"]),
        f"{probe['learning_rate']:g}",
        str(probe["batch_size"]),
        str(probe["epochs"]),
        where if owner else where.partition("/")[2] or where,
    )


_SHORT = 12
"""Characters of a commit."""


def show_checked(checked: Checked, console: Console) -> None:
    """Print encoders and tasks, what could not be checked, and that the study is ready."""
    encoders = "Encoder", "Architecture", "Layers × heads", "Positions", "Commit"
    tasks = "Task", "Metric", "Training rows", "Validation rows", "Labels", "Commit"
    print_table(console, encoders, _encoders(checked.inputs))
    print_table(console, tasks, _tasks(checked))
    for note in checked.unchecked:
        say(console, f"not checked: {note}")
    for note in checked.notes:
        say(console, note)
    for warning in checked.warnings:
        say(console, f"warning: {warning}")
    say(console, "ready" if checked.to_run else "ready: every step is cached")


def _encoders(inputs: StudyInputs) -> Iterator[tuple[str, ...]]:
    for encoder in inputs.encoders:
        shape = f"{encoder.layers} × {encoder.heads}"
        commit = (encoder.revision or "local")[:_SHORT]
        label = inputs.labels[encoder]
        yield label, encoder.model_type, shape, str(encoder.positions), commit


def _tasks(checked: Checked) -> Iterator[tuple[str, ...]]:
    for text in named_texts(checked.inputs.study):
        preview = checked.previews.get(text)
        rows = [f"{count:,}" for count in preview.rows] if preview and preview.rows else ["?", "?"]
        commit = text.source.revision if isinstance(text.source, HubSource) else None
        yield text.name, text.metric, *rows, _listed(preview), (commit or "local")[:_SHORT]


def _listed(preview: Preview | None) -> str:
    """The labels, the first of them where there are many."""
    names = preview.label_names if preview else None
    if not names:
        return ""
    return ", ".join(names) if len(names) < 4 else f"{len(names)}: {', '.join(names[:3])}, …"
