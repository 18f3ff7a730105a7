"""``papa plan``: what would run, what is cached, and how long such steps took in this store."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

import typer

from papa.errors import printable
from papa.flows.check import check_study
from papa.flows.cli import options
from papa.flows.progress import duration
from papa.storage.artifacts import metadata_below
from papa.tasks.step import Step


def plan(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    allow_source: options.AllowSource = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    as_json: options.AsJson = False,
) -> None:
    """Show which steps would run or are cached, and their estimated time; compute nothing."""
    with options.one_sentence():
        spec = options.load_or_list_problems(study, overrides, allow_source, code)
        opened = options.open_store(store)
        checked = check_study(spec, opened, purpose="plan", code=code or ())
        steps = checked.pipeline.steps
        missing = checked.missing
        seconds: dict[Step, float] = {}
        for stage in {step.stage.name for step in steps}:
            finished = metadata_below(f"{opened.artifacts}/{stage}").values()
            if finished:
                about = mean(metadata["seconds"] for metadata in finished)
                seconds |= {step: about for step in missing if step.stage.name == stage}
        planned: list[dict[str, Any]] = [
            {
                "stage": step.stage.name,
                "name": step.name,
                "key": step.key,
                "cached": step not in missing,
                "seconds": seconds.get(step),
            }
            for step in steps
        ]
        if as_json:
            unchecked = list(checked.unchecked)
            options.print_json({"study": spec.name, "unchecked": unchecked, "steps": planned})
            return
        for note in checked.unchecked:
            typer.echo(printable(f"not checked: {note}"))
        _print_steps(planned)


def _print_steps(steps: Sequence[dict[str, Any]]) -> None:
    """Print a line for each step, with the time that a missing one may take, and a sum."""
    rows = []
    for step in steps:
        name = step["name"].removeprefix(f"{step['stage']} · ")
        state = "cached" if step["cached"] else "to run"
        about = duration(step["seconds"]) if step["seconds"] is not None else ""
        rows.append((step["stage"], name, state, about))
    options.print_table(("Stage", "Step", "State", "About"), rows)
    seconds = [step["seconds"] for step in steps if step["seconds"] is not None]
    left = sum(not step["cached"] for step in steps)
    if seconds:
        typer.echo("About: mean time of the stage's finished steps in this store, on one worker")
    elif left:
        typer.echo("No times: they are those of finished steps, of which this store has none yet")
    total = f" took {duration(sum(seconds))} of a worker here"
    would = f"{left} would run" if left else "nothing would run"
    would += f", of which {len(seconds)}{total}" if seconds else ""
    typer.echo(f"{len(steps) - left} of {len(steps)} steps are cached; {would}.")
