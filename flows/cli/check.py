"""``papa check``, ``papa plan``: what is wrong with a study, and what of it would run."""

from __future__ import annotations

from itertools import groupby
from statistics import mean

import typer
from rich.console import Console
from rich.table import Column, Table

from flows.cli import options
from flows.progress import duration
from papa.errors import shortened


def check(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
) -> None:
    """Look at everything that a study names, and tell all that is wrong with it;
    compute nothing.
    """
    with options.one_sentence():
        from flows.check import check_study
        from flows.server import missing_engines
        from papa.spec.file import load_study
        from papa.study.inputs import named_texts

        checked = check_study(
            load_study(study, overrides or ()),
            options.open_store(store),
            workers=workers,
            ray_address=ray_address,
            fetch_weights=False,
            code=code or (),
        )
        encoders, texts = [], []
        for encoder, label in checked.inputs.labels.items():
            shape = f"{encoder.layers} × {encoder.heads}"
            commit = (encoder.revision or "local")[:12]
            encoders.append((label, encoder.model_type, shape, str(encoder.positions), commit))
        of_encoders = "Encoder", "Architecture", "Layers × heads", "Positions", "Commit"
        options.print_table(of_encoders, encoders)
        for text in named_texts(checked.inputs.study):
            seen = checked.previews.get(text)
            rows = [f"{count:,}" for count in seen.rows] if seen else ["?", "?"]
            labels = shortened(", ".join((seen and seen.label_names) or ()), 40)
            commit = (getattr(text.source, "revision", None) or "local")[:12]
            texts.append((text.name, text.metric, *rows, labels, commit))
        of_tasks = "Task", "Metric", "Training rows", "Validation rows", "Labels", "Commit"
        options.print_table(of_tasks, texts)
        for sentence in checked.unchecked:
            typer.echo(f"not checked: {sentence}")
        for note in checked.notes:
            typer.echo(note)
        if missing := missing_engines():
            typer.echo(f"warning: {missing}")
        typer.echo("ready" if checked.to_run else "ready: every step is cached")


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
        from papa.storage.artifacts import metadata_below

        spec, opened = load_study(study, overrides or ()), options.open_store(store)
        checked = check_study(spec, opened, workers=workers, for_plan=True, code=code or ())
        for note in checked.unchecked:
            typer.echo(f"not checked: {note}")
        steps = checked.steps.steps
        cached = {step for step in steps if step.is_complete(opened)}
        left, took = [step for step in steps if step not in cached], dict[str, list[float]]()
        for stage in {step.stage for step in steps}:
            did = metadata_below(f"{opened.artifacts}/{stage}").values()
            took[stage] = [one["seconds"] for one in did]
        seconds = {step: mean(took[step.stage]) for step in left if took[step.stage]}
        caption = "time on one worker: the mean of this store's finished steps of the stage"
        table = Table("Stage", "Step", "State", Column("About", justify="right"), caption=caption)
        for stage, of_stage in groupby(steps, lambda step: step.stage):
            table.add_section()
            for step in of_stage:
                state = "[green]cached[/]" if step in cached else "to run"
                about = duration(seconds[step]) if step in seconds else ""
                table.add_row(stage, step.name.removeprefix(f"{stage} · "), state, about)
        Console().print(table)
        total = f" took {duration(sum(seconds.values()))} of a worker here"
        would = f"{len(left)} would run" if left else "nothing would run"
        would += f", of which {len(seconds)}{total}" if seconds else ""
        typer.echo(f"{len(cached)} of {len(steps)} steps are cached; {would}.")
