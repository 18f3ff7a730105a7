"""``papa check``: what is wrong with a study."""

import os
from typing import Any

import typer

from papa.errors import PapaError, printable, shortened
from papa.flows.check import Checked, check_study
from papa.flows.cli import options
from papa.flows.environment import missing_engines, outside_working_folder
from papa.tasks.inputs import named_corpora
from papa.tasks.mlflow_address import check_tracking, tracking_address

_ROWS = ("train_rows", "validation_rows")


def check(
    study: options.Study,
    overrides: options.Overrides = None,
    code: options.Code = None,
    allow_source: options.AllowSource = None,
    store: options.StoreAddress = options.DEFAULT_STORE,
    workers: options.Workers = None,
    ray_address: options.RayAddress = None,
    as_json: options.AsJson = False,
) -> None:
    """List all problems of a study's encoders, data, columns and labels; compute nothing."""
    with options.one_sentence():
        try:
            code_paths = [path.absolute() for path in code or ()]
            spec = options.load_or_list_problems(study, overrides, allow_source, code_paths)
            opened = options.open_store(store)
            with outside_working_folder():
                checked = check_study(
                    spec,
                    opened,
                    workers=workers,
                    ray_address=ray_address,
                    purpose="check",
                    code=code_paths,
                )
        except PapaError as error:
            if as_json:
                options.print_json({"problems": error.reasons})
            raise
        document = _document(checked)
        if as_json:
            options.print_json(document)
        else:
            _print(document)
        # Beside JSON on the other stream.
        missing = missing_engines()
        if missing:
            typer.echo(f"warning: {missing}", err=as_json)
        elif os.environ.get("MLFLOW_TRACKING_URI"):
            check_tracking(tracking_address())
        if not as_json:
            typer.echo("ready" if checked.missing else "ready: every step is cached")


def _document(checked: Checked) -> dict[str, Any]:
    """Return what is printed of a study that can run, as JSON has it."""
    tasks = []
    for task in named_corpora(checked.inputs.study):
        preview = checked.previews.get(task)
        tasks.append(
            {
                "name": task.name,
                "metric": task.metric,
                "train_rows": preview.rows[0] if preview else None,
                "validation_rows": preview.rows[1] if preview else None,
                "labels": list(preview.label_names or ()) if preview else None,
                "commit": getattr(task.source, "revision", None),
            }
        )
    encoders = [
        {
            "name": label,
            "architecture": encoder.model_type,
            "layers": encoder.layers,
            "heads": encoder.heads,
            "positions": encoder.positions,
            "commit": encoder.revision,
        }
        for encoder, label in checked.inputs.encoder_labels.items()
    ]
    return {
        "study": checked.inputs.study.name,
        "encoders": encoders,
        "tasks": tasks,
        "steps": len(checked.pipeline.steps),
        "steps_to_run": len(checked.missing),
        "unchecked": list(checked.unchecked),
        "notes": list(checked.notes),
        "problems": [],
    }


def _print(document: dict[str, Any]) -> None:
    """Print the encoders and tasks of a study that can run, and what is to be known of it."""
    options.print_table(
        ("Encoder", "Architecture", "Layers × heads", "Positions", "Commit"),
        [
            (
                encoder["name"],
                encoder["architecture"],
                f"{encoder['layers']} × {encoder['heads']}",
                str(encoder["positions"]),
                (encoder["commit"] or "local")[:12],
            )
            for encoder in document["encoders"]
        ],
    )
    options.print_table(
        ("Task", "Metric", "Training rows", "Validation rows", "Labels", "Commit"),
        [
            (
                task["name"],
                task["metric"],
                *("?" if task[rows] is None else f"{task[rows]:,}" for rows in _ROWS),
                shortened(", ".join(task["labels"] or ()), 40),
                (task["commit"] or "local")[:12],
            )
            for task in document["tasks"]
        ],
    )
    for sentence in document["unchecked"]:
        typer.echo(printable(f"not checked: {sentence}"))
    for note in document["notes"]:
        typer.echo(printable(note))
