"""The studies of a store: what ``papa list`` and ``papa report`` do."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Column

from flows.cli.terminal import print_rows, print_table, say
from papa.errors import ArtifactError, DamagedError, PapaError, SpecError, shortened
from papa.spec.file import load_study
from papa.storage.artifacts import METADATA, published, read_metadata, remove
from papa.storage.store import Store
from papa.study.locks import in_use
from papa.study.manifest import open_study, place_results

_HEADINGS = ("Study", "Date", "Encoders", "Tasks", "State", "Report")


def stored_studies(store: Store) -> list[dict[str, str]]:
    """The studies that were started in a store, the latest first, as ``papa list`` shows them."""
    store.check_marked()
    folder = store.root / "studies"
    finished = {path.parent.name for path in folder.glob(f"[!.]*/{METADATA}")}
    names = finished | {path.stem for path in folder.glob("[!.]*.yaml")}
    rows = (_row(store, name) for name in sorted(names))
    return sorted(rows, key=lambda row: row["Date"], reverse=True)


def _row(store: Store, name: str) -> dict[str, str]:
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
    date = (saved if state == "not finished" else results / METADATA).stat().st_mtime
    with suppress(PapaError):
        date = read_metadata(results).get("finished", date)
    if failed.is_file():
        state = f"failed: {shortened(' '.join(failed.read_text().split()), 400)}"
    told = (
        datetime.fromtimestamp(date).strftime("%Y-%m-%d %H:%M"),
        ", ".join(Path(encoder.name).name for encoder in study.encoders) if study else "",
        ", ".join(task.name for task in study.tasks) if study else "",
        state,
        str(report) if report.exists() else "",
    )
    return dict(zip(_HEADINGS, (name, *told), strict=True))


def show_studies(store: Store, console: Console) -> None:
    """Print the studies of a store: a table in a terminal, elsewhere lines of values parted by
    tabs.
    """
    rows = [study.values() for study in stored_studies(store)]
    if not console.is_terminal:
        print_rows(console, [_HEADINGS, *rows])
    else:
        print_table(console, (Column(heading, overflow="fold") for heading in _HEADINGS), rows)


def rebuild_report(store: Store, study: str, console: Console) -> None:
    """Write the report of a finished study again, from what it stored, and print where it is.

    Nothing else is computed. MLflow gets it with the next ``papa run``.
    """
    from papa.reporting.report import write_report

    found = open_study(store, study)
    name, metadata = found.manifest.study, read_metadata(found.folder)
    store.make()
    with in_use(store), TemporaryDirectory(dir=store.scratch) as made:
        for table in metadata["files"]:
            shutil.copyfile(found.folder / table, Path(made, table))
        write_report(Path(made), found.findings())
        artifact = store.folder(metadata["stage"], metadata["key"])
        remove(artifact)
        with published(artifact, metadata) as folder:
            shutil.copytree(made, folder, dirs_exist_ok=True)
    place_results(store, name, store.reference(metadata["stage"], metadata["key"]))
    say(console, f"report   {store.study(name)}/report.html")
