"""What ``papa check`` prints of a study that can run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from flows.check import Checked
from flows.inputs import StudyInputs, named_texts
from papa.corpora.look import TaskLook
from papa.spec import HubSource

_SHORT = 12
"""Characters of a commit."""


def show_checked(checked: Checked, console: Console) -> None:
    """Print what was found, what was not looked at, and that the study is ready."""
    console.print(_encoders_table(checked.inputs), _tasks_table(checked))
    for note in checked.unseen:
        console.print(f"not looked at: {note}", highlight=False, soft_wrap=True, markup=False)
    console.print("ready" if checked.to_run else "ready: every step is cached", highlight=False)


def _encoders_table(inputs: StudyInputs) -> Table:
    table = Table("Encoder", "Architecture", "Layers × heads", "Positions", "Commit")
    for encoder in inputs.encoders:
        shape, commit = f"{encoder.layers} × {encoder.heads}", (encoder.revision or "local")[:_SHORT]
        table.add_row(inputs.label(encoder), encoder.model_type, shape, str(encoder.positions), commit)
    return table


def _tasks_table(checked: Checked) -> Table:
    table = Table("Task", "Metric", "Training rows", "Validation rows", "Labels", "Commit")
    for text in named_texts(checked.inputs.study):
        look = checked.looks.get(text)
        rows = [f"{count:,}" for count in look.rows] if look and look.rows else ["?", "?"]
        commit = text.source.revision if isinstance(text.source, HubSource) else None
        table.add_row(text.name, text.metric, *rows, _listed(look), (commit or "local")[:_SHORT])
    return table


def _listed(look: TaskLook | None) -> str:
    """The labels, the first of them where there are many."""
    names = look.label_names if look else None
    if not names:
        return ""
    return ", ".join(names) if len(names) < 4 else f"{len(names)}: {', '.join(names[:3])}, …"
