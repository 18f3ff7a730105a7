"""``papa plan``: what would run, what is cached, and how long such steps took in this store."""

from __future__ import annotations

from itertools import groupby
from statistics import mean

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from papa.errors import printable
from papa.flows.cli import options
from papa.flows.progress import duration


def plan(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    allow_source: options.AllowSource = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
) -> None:
    """Show what would run, what is cached and how long such steps took here; compute nothing."""
    with options.one_sentence():
        from papa.flows.check import check_study
        from papa.storage.artifacts import metadata_below
        from papa.tasks.stored import load_to_run

        spec = load_to_run(study, overrides or (), allow_source or ())
        opened = options.open_store(store)
        checked = check_study(spec, opened, workers=workers, for_plan=True, code=code or ())
        for note in checked.unchecked:
            typer.echo(printable(f"not checked: {note}"))
        steps = checked.steps.steps
        cached = {step for step in steps if step.is_complete(opened)}
        left, took = [step for step in steps if step not in cached], dict[str, list[float]]()
        for stage in {step.stage.name for step in steps}:
            did = metadata_below(f"{opened.artifacts}/{stage}").values()
            took[stage] = [one["seconds"] for one in did]
        seconds = {step: mean(took[step.stage.name]) for step in left if took[step.stage.name]}
        caption = "time on one worker: the mean of this store's finished steps of the stage"
        table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
        for stage, of_stage in groupby(steps, lambda step: step.stage.name):
            table.add_section()
            for step in of_stage:
                state = "[green]cached[/]" if step in cached else "to run"
                about = duration(seconds[step]) if step in seconds else ""
                name = Text(printable(step.name.removeprefix(f"{stage} · ")))
                table.add_row(stage, name, state, about)
        Console().print(table)
        total = f" took {duration(sum(seconds.values()))} of a worker here"
        would = f"{len(left)} would run" if left else "nothing would run"
        would += f", of which {len(seconds)}{total}" if seconds else ""
        typer.echo(f"{len(cached)} of {len(steps)} steps are cached; {would}.")
