"""``papa check``: what is wrong with a study."""

from __future__ import annotations

import os

import typer

from papa.errors import printable, shortened
from papa.flows.cli import options


def check(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    allow_source: options.AllowSource = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
) -> None:
    """Look at everything that a study names, and tell all that is wrong with it;
    compute nothing.
    """
    with options.one_sentence():
        from papa.flows.check import check_study
        from papa.flows.server import missing_engines, outside_working_folder
        from papa.tasks.inputs import named_texts
        from papa.tasks.stored import load_to_run

        spec = load_to_run(study, overrides or (), allow_source or ())
        opened = options.open_store(store)
        code_paths = [path.absolute() for path in code or ()]
        with outside_working_folder():
            checked = check_study(
                spec,
                opened,
                workers=workers,
                ray_address=ray_address,
                fetch_weights=False,
                code=code_paths,
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
            typer.echo(printable(f"not checked: {sentence}"))
        for note in checked.notes:
            typer.echo(printable(note))
        if missing := missing_engines():
            typer.echo(f"warning: {missing}")
        elif os.environ.get("MLFLOW_TRACKING_URI"):
            from papa.tasks.mlflow_address import check_tracking, tracking_address

            check_tracking(tracking_address())
        typer.echo("ready" if checked.missing else "ready: every step is cached")
