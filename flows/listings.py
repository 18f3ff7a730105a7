"""What a study can name: architectures and tasks."""

from __future__ import annotations

from rich.table import Table

from papa.study_file import registry


def models_table() -> Table:
    """The supported architectures, and the embedded encoder."""
    from papa.encoders.families import FAMILIES
    from papa.encoders.reference import EMBEDDED

    table = Table(
        "Family", "Architectures", "Note", caption=f"Any hub name or local folder of these; embedded: {EMBEDDED}"
    )
    for family in FAMILIES:
        table.add_row(family.name, ", ".join(family.model_types), family.note)
    return table


def tasks_table() -> Table:
    """The tasks known by name."""
    table = Table("Task", "Kind", "Metric", "Slots", "Source", "Learning rate", "Batch", "Epochs")
    for name, task in sorted(registry().items()):
        source, probe = task["source"], task["probe"]
        where = "/".join(str(source[key]) for key in ("name", "config") if source.get(key))
        table.add_row(
            name,
            task["kind"],
            task["metric"],
            str(task["slots"]),
            where or source["kind"],
            f"{probe['learning_rate']:g}",
            str(probe["batch_size"]),
            str(probe["epochs"]),
        )
    return table
