"""``papa tasks``: the tasks that a study can name."""

from rich.box import SIMPLE

from papa.flows.cli import options
from papa.spec.file import registry


def tasks() -> None:
    """List the known tasks, which a study can name."""
    with options.one_sentence():
        rows = []
        for name, task in sorted(registry().items()):
            source = task["source"]
            probe = task["probe"]
            where = "/".join(str(source[key]) for key in ("name", "config") if source.get(key))
            numbers = task["slots"], f"{probe['learning_rate']:g}", probe["batch_size"]
            shown = (*map(str, numbers), str(probe["epochs"]), where or source["kind"])
            rows.append((name, task["kind"], task["metric"], *shown))
        headings = "Task", "Kind", "Metric", "Slots", "Rate", "Batch", "Epochs", "Source"
        options.print_table(headings, rows, box=SIMPLE, padding=(0, 1, 0, 0))
