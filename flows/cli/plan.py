"""``papa plan``: what would run, what is cached, and how long such steps took in this store."""

from __future__ import annotations

from itertools import groupby
from statistics import mean
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from flows.cli import options
from flows.cli.terminal import say
from flows.progress import duration

if TYPE_CHECKING:
    from flows.check import Checked
    from papa.storage.store import Store


def plan(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
) -> None:
    """Show what would run, what is cached and how long such steps took here; compute nothing."""
    with options.one_sentence():
        from flows.check import check_study
        from papa.spec.file import load_study

        spec, opened = load_study(study, overrides or ()), options.open_store(store)
        checked = check_study(spec, opened, workers=workers, for_plan=True, code=code or ())
        _show(checked, opened, Console())


def _show(checked: Checked, store: Store, console: Console) -> None:
    from papa.storage.artifacts import metadata_below

    for note in checked.unchecked:
        say(console, f"not checked: {note}")
    steps = checked.steps.steps
    cached = {step for step in steps if step.is_complete(store)}
    took = {
        stage: [one["seconds"] for one in done.values() if "seconds" in one]
        for stage in {step.stage for step in steps}
        for done in [metadata_below(f"{store.artifacts}/{stage}")]
    }
    seconds = {
        step: mean(took[step.stage]) for step in steps if took[step.stage] and step not in cached
    }
    caption = "time on one worker: the mean of this store's finished steps of the stage"
    table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
    for stage, of_stage in groupby(steps, lambda step: step.stage):
        table.add_section()
        for step in of_stage:
            state = "[green]cached[/]" if step in cached else "to run"
            about = duration(seconds[step]) if step in seconds else ""
            table.add_row(stage, step.name.removeprefix(f"{stage} · "), state, about)
    console.print(table)
    said, missing = f"{len(cached)} of {len(steps)} steps are cached; ", len(steps) - len(cached)
    if not missing:
        say(console, f"{said}nothing would run.")
        return
    took_here = f", of which {len(seconds)} took {duration(sum(seconds.values()))} of a worker here"
    say(console, f"{said}{missing} would run{took_here if seconds else ''}.")
