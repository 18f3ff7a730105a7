"""``papa models``, ``papa tasks``: what a study can name; ``papa list``: the studies of a store."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.filesize import decimal
from rich.table import Column

from papa.errors import ArtifactError, DamagedError, PapaError, SpecError, printable, shortened
from papa.flows.cli import options

if TYPE_CHECKING:
    from papa.storage.store import Store
    from papa.storage.unused import Contents

_HEADINGS = ("Study", "Date", "Encoders", "Tasks", "State", "Size", "Report")


def models() -> None:
    """List the encoders that a study can have, and models whose heads can be replaced in place."""
    with options.one_sentence():
        from papa.models.architectures import Outcome, read_architectures
        from papa.models.reference import EMBEDDED
        from papa.models.supported import FAMILIES

        families = [
            (family.name, ", ".join(family.model_types), family.note) for family in FAMILIES
        ]
        hub = f"Any hub name or local folder of these; embedded: {EMBEDDED}"
        options.print_table(("Family", "Architectures", "Note"), families, caption=hub)
        by_outcome: dict[Outcome, list[str]] = {}
        for row in read_architectures():
            name = f"{row.model_type} ({row.part})" if row.part else row.model_type
            by_outcome.setdefault(row.outcome, []).append(name)
        listed = (Outcome.PASSES, Outcome.PARTLY, Outcome.REFUSED)
        rows = [(outcome.value, ", ".join(by_outcome[outcome])) for outcome in listed]
        caption = "With papa.ablated, any task's head; a name in parentheses is for part="
        options.print_table(("Tests", "Architectures"), rows, caption=caption)


def tasks() -> None:
    """List the tasks that a study can name."""
    with options.one_sentence():
        from papa.spec.file import registry

        rows = []
        for name, task in sorted(registry().items()):
            source, probe = task["source"], task["probe"]
            where = "/".join(str(source[key]) for key in ("name", "config") if source.get(key))
            numbers = task["slots"], f"{probe['learning_rate']:g}", probe["batch_size"]
            shown = (*map(str, numbers), str(probe["epochs"]), where or source["kind"])
            rows.append((name, task["kind"], task["metric"], *shown))
        headings = "Task", "Kind", "Metric", "Slots", "Rate", "Batch", "Epochs", "Source"
        if Console().is_terminal:
            options.print_table(headings, rows, box=SIMPLE, padding=(0, 1, 0, 0))
        else:
            typer.echo("\n".join(map("\t".join, [headings, *rows])))


def list_studies(
    store: options.StoreAddress = options.DEFAULT_STORE, verbose: options.Verbose = False
) -> None:
    """List the studies of a store, how far they are, and where their reports are."""
    with options.one_sentence(verbose):
        rows = [study.values() for study in stored_studies(options.marked_store(store))]
        if Console().is_terminal:
            options.print_table((Column(name, overflow="fold") for name in _HEADINGS), rows)
        else:
            for row in (_HEADINGS, *rows):
                typer.echo("\t".join(map(printable, row)))


def stored_studies(store: Store) -> list[dict[str, str]]:
    """The studies that were started in a store, the latest first, as ``papa list`` shows them."""
    from papa.storage.unused import Contents

    contents = Contents(store)
    rows = (_row(store, name, contents) for name in names_of_studies(store))
    return sorted(rows, key=lambda row: row["Date"], reverse=True)


def names_of_studies(store: Store) -> list[str]:
    """The studies that were started in a store."""
    from papa.storage.artifacts import METADATA

    folder = store.study("")
    names = {path.parent.name for path in folder.glob(f"[!.]*/{METADATA}")}
    for kind in ("yaml", "failed"):
        names |= {path.name.removesuffix(f".{kind}") for path in folder.glob(f"[!.]*.{kind}")}
    return sorted(names)


def _row(store: Store, name: str, contents: Contents) -> dict[str, str]:
    from papa.spec.file import load_study
    from papa.storage.artifacts import METADATA, read_metadata
    from papa.tasks.manifest import open_study

    results, saved, failed = (store.study(f"{name}{end}") for end in ("", ".yaml", ".failed"))
    report, study, state = results / "report.html", None, "finished"
    try:
        study = open_study(store, name).study
    except DamagedError:
        state = "damaged results"
    except ArtifactError:
        state = "finished by another version of PAPA"
    except SpecError:
        state = "not finished"
    with suppress(PapaError):
        study = study or load_study(saved)
    dated = (results / METADATA, saved, failed)
    date = next(path for path in dated[state == "not finished" :] if path.exists()).stat().st_mtime
    with suppress(PapaError):
        date = read_metadata(results).get("finished", date)
    if failed.is_file():
        reason = failed.read_text(encoding="utf-8", errors="replace")
        state = f"failed: {shortened(' '.join(reason.split()), 400)}"
    told = (
        datetime.fromtimestamp(date).strftime("%Y-%m-%d %H:%M"),
        ", ".join(Path(encoder.name).name for encoder in study.encoders) if study else "",
        ", ".join(task.name for task in study.tasks) if study else "",
        state,
        decimal(size) if (size := sum(contents.used_by(name.__eq__).values())) else "",
        str(report) if report.exists() else "",
    )
    return dict(zip(_HEADINGS, (name, *told), strict=True))
