"""``papa models`` and ``papa tasks``: what a study can name."""

from __future__ import annotations

import typer
from rich.box import SIMPLE
from rich.console import Console

from flows.cli.options import one_sentence, print_table


def models() -> None:
    """List the encoders that a study can have, and the models whose heads can be replaced
    in place.
    """
    with one_sentence():
        from papa.attention import TESTED
        from papa.encoders.reference import EMBEDDED
        from papa.encoders.supported import FAMILIES

        hub = f"Any hub name or local folder of these; embedded: {EMBEDDED}"
        ablated = "with papa.ablated(model, heads, by=…): any task's head"
        for heading, listed, caption in (("Family", FAMILIES, hub), ("In place", TESTED, ablated)):
            rows = ((one.name, ", ".join(one.model_types), one.note) for one in listed)
            print_table((heading, "Architectures", "Note"), rows, caption=caption)


def tasks() -> None:
    """List the tasks that a study can name."""
    with one_sentence():
        from papa.spec.file import registry

        rows = []
        for name, task in sorted(registry().items()):
            source, probe = task["source"], task["probe"]
            where = "/".join(str(source[key]) for key in ("name", "config") if source.get(key))
            numbers = task["slots"], f"{probe['learning_rate']:g}", probe["batch_size"]
            shown = (*map(str, numbers), str(probe["epochs"]), where or source["kind"])
            rows.append((name, task["kind"], task["metric"], *shown))
        headings = "Task", "Kind", "Metric", "Slots", "Rate", "Batch", "Epochs", "Source"
        if Console().is_terminal:
            print_table(headings, rows, box=SIMPLE, padding=(0, 1, 0, 0))
        else:
            typer.echo("\n".join(map("\t".join, [headings, *rows])))
