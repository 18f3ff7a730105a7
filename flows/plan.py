"""What a study would run, what is cached, and how long steps of these stages took before."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.table import Column, Table

from flows.check import Checked
from flows.progress import duration
from flows.terminal import say
from papa.study.sizes import stage_seconds
from papa.study.store import Store


def show_plan(checked: Checked, store: Store, console: Console) -> None:
    """Print the plan of a study, from the artifacts of a store."""
    for note in checked.unchecked:
        say(console, f"not checked: {note}")
    cached = {step: step.is_complete(store) for step in checked.steps.steps}
    caption = "time: what finished steps of the stage took in this store, on average"
    table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
    total = 0.0
    for stage, steps in groupby(cached, lambda step: step.stage):
        table.add_section()
        seconds = stage_seconds(store, stage)
        for step in steps:
            state, about = ("[green]cached[/]", "") if cached[step] else ("to run", "")
            if seconds is not None and not cached[step]:
                total, about = total + seconds, duration(seconds)
            table.add_row(stage, step.name.removeprefix(f"{stage} · "), state, about)
    console.print(table)
    missing = sum(not there for there in cached.values())
    would = f"{missing} would run" if missing else "nothing would run"
    work = f", about {duration(total)} of one worker's time" if total else ""
    say(console, f"{len(cached) - missing} of {len(cached)} steps are cached; {would}{work}.")
