"""What a study would run, what is cached, and how long such steps took in this store; nothing is
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from rich.console import Console
from rich.table import Column, Table

from flows.check import Checked
from flows.progress import duration
from flows.terminal import say
from papa.study.step import Step
from papa.study.store import Store


@dataclass(frozen=True)
class PlannedStep:
    """One step of a plan, and the mean seconds of finished steps of its stage: None where the store
    has none, 0 where it is cached itself.
    """

    step: Step
    cached: bool
    seconds: float | None


def planned_steps(steps: Sequence[Step], store: Store) -> list[PlannedStep]:
    """What of a study's steps is in a store, and how long the others may take."""
    took = {
        stage: [done["seconds"] for done in store.metadata(stage) if "seconds" in done]
        for stage in dict.fromkeys(step.stage for step in steps)
    }
    means = {stage: mean(seconds) if seconds else None for stage, seconds in took.items()}
    cached = {step: step.is_complete(store) for step in steps}
    return [
        PlannedStep(step, there, 0.0 if there else means[step.stage])
        for step, there in cached.items()
    ]


def show_plan(checked: Checked, store: Store, console: Console) -> None:
    """Print the plan of a study."""
    for note in checked.unchecked:
        say(console, f"not checked: {note}")
    steps = planned_steps(checked.steps.steps, store)
    caption = "time on one worker: the mean of this store's finished steps of the stage"
    table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
    for stage, of_stage in groupby(steps, lambda planned: planned.step.stage):
        table.add_section()
        for planned in of_stage:
            cost = duration(planned.seconds) if planned.seconds else ""
            state = "[green]cached[/]" if planned.cached else "to run"
            table.add_row(stage, planned.step.name.removeprefix(f"{stage} · "), state, cost)
    console.print(table)
    missing = [planned for planned in steps if not planned.cached]
    cached = f"{len(steps) - len(missing)} of {len(steps)} steps are cached; "
    if not missing:
        say(console, f"{cached}nothing would run.")
        return
    known = [planned.seconds for planned in missing if planned.seconds is not None]
    took = f", of which {len(known)} took {duration(sum(known))} of a worker here" if known else ""
    say(console, f"{cached}{len(missing)} would run{took}.")
