"""``papa check``: what is wrong with a study, and what is missing for it; nothing is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from flows.options import (
    DEFAULT_STORE,
    Code,
    Overrides,
    RayAddress,
    StoreAddress,
    Study,
    Workers,
    one_sentence,
    open_store,
)
from flows.terminal import print_table, say

if TYPE_CHECKING:
    from flows.check import Checked

_SHORT = 12
"""Characters of a commit."""


def check(
    study: Study,
    overrides: Overrides = None,
    code: Code = None,
    store: StoreAddress = DEFAULT_STORE,
    workers: Workers = None,
    ray_address: RayAddress = None,
) -> None:
    """Look at everything that a study names, and tell all that is wrong with it;
    compute nothing.
    """
    with one_sentence():
        from flows.check import check_study
        from flows.server import missing_engines
        from papa.spec.file import load_study

        checked = check_study(
            load_study(study, overrides or ()),
            open_store(store),
            workers=workers,
            ray_address=ray_address,
            fetch_weights=False,
            code=code or (),
        )
        console = Console()
        _show_inputs(checked, console)
        for sentence in checked.unchecked:
            say(console, f"not checked: {sentence}")
        for note in checked.notes:
            say(console, note)
        if missing := missing_engines():
            say(console, f"warning: {missing}")
        say(console, "ready" if checked.to_run else "ready: every step is cached")


def _show_inputs(checked: Checked, console: Console) -> None:
    from papa.spec import HubSource
    from papa.study.inputs import named_texts

    inputs = checked.inputs
    encoders = (
        (
            inputs.labels[encoder],
            encoder.model_type,
            f"{encoder.layers} × {encoder.heads}",
            str(encoder.positions),
            (encoder.revision or "local")[:_SHORT],
        )
        for encoder in inputs.encoders
    )
    of_encoders = "Encoder", "Architecture", "Layers × heads", "Positions", "Commit"
    print_table(console, of_encoders, encoders)
    tasks = []
    for text in named_texts(inputs.study):
        seen = checked.previews.get(text)
        rows = [f"{count:,}" for count in seen.rows] if seen and seen.rows else ["?", "?"]
        labels = (seen and seen.label_names) or ()
        shown = ", ".join(labels[:3])
        if len(labels) > 3:
            shown = f"{len(labels)}: {shown}, …"
        commit = text.source.revision if isinstance(text.source, HubSource) else None
        tasks.append((text.name, text.metric, *rows, shown, (commit or "local")[:_SHORT]))
    of_tasks = "Task", "Metric", "Training rows", "Validation rows", "Labels", "Commit"
    print_table(console, of_tasks, tasks)
