"""The studies of a store: the file of what ran under each name, ``papa list``, ``papa report``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Column

from flows.terminal import print_rows, print_table, say
from papa.errors import DamagedError, PapaError, SpecError, nearest_first, shortened
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.artifacts import is_complete, published, read_metadata, remove
from papa.storage.atomic import write_atomically
from papa.storage.metadata import METADATA
from papa.study.manifest import (
    SPECIFICATION,
    VERSION,
    open_study,
    place_results,
    specification,
)
from papa.study.store import Store, check_marked, running

NOT_FINISHED = "not finished"
_HEADINGS = ("Study", "Date", "Encoders", "Tasks", "State")


@dataclass(frozen=True)
class ListedStudy:
    """A study that was started in a store: when it was finished, or its file written where it never
    was, in seconds since 1970; the names of its encoders and tasks, none where its specification
    cannot be read; ``finished``, or what it lacks, in words; and why it ended last, or "".
    """

    name: str
    date: float
    encoders: tuple[str, ...]
    tasks: tuple[str, ...]
    state: str
    report: Path | None
    failure: str = ""


def saved_study(store: Store, name: str) -> Path:
    """The file of the study that ran last under a name; there before its results are."""
    return store.study(f"{name}.yaml")


def save_study(store: Store, study: StudySpec) -> Path:
    """Write a study's specification beside its results, so that it can be run again."""
    path = saved_study(store, study.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, specification(study))
    return path


@contextmanager
def failure_kept(store: Store, name: str) -> Iterator[None]:
    """Where the block fails keep why, for ``papa list``; forget it where it did not."""
    failed = store.study(f"{name}.failed")
    try:
        yield
    except PapaError as error:
        write_atomically(failed, f"{error}\n")
        raise
    failed.unlink(missing_ok=True)


def stored_studies(store: Store) -> list[ListedStudy]:
    """The studies that were started in a store, the latest first."""
    check_marked(store.address)
    studies = (_listed(store, name) for name in names_in(store))
    return sorted(studies, key=lambda study: (-study.date, study.name))


def names_in(store: Store) -> set[str]:
    """The names of the studies that were started in a store."""
    folder = store.root / "studies"
    finished = {path.parent.name for path in folder.glob(f"[!.]*/{METADATA}")}
    return {path.stem for path in folder.glob("[!.]*.yaml")} | finished


def study_file(store: Store, study: str) -> Path:
    """The file of a study that is given by its path, or by its name in a store."""
    named = [saved_study(store, study), store.study(study) / SPECIFICATION]
    found = next((path for path in (Path(study), *named) if path.is_file()), None)
    if found is not None:
        if found in named and (name := load_study(found).name) != study:
            raise SpecError(
                f"{found} is of study '{name}', expected '{study}': run it again from its own file"
            )
        return found
    names = nearest_first(study, names_in(store))
    raise SpecError(
        f"there is no study at {study}, and none of that name in {store.address}: it has {names}"
    )


def _listed(store: Store, name: str) -> ListedStudy:
    results, saved = store.study(name), saved_study(store, name)
    report, failed = results / "report.html", store.study(f"{name}.failed")
    finished = is_complete(results)
    date, state, spec = _end(store, name) if finished else (None, NOT_FINISHED, _read(saved))
    why = failed.read_text(errors="replace") if failed.is_file() else ""
    return ListedStudy(
        name,
        saved.stat().st_mtime if date is None else date,
        tuple(encoder.name for encoder in spec.encoders) if spec else (),
        tuple(task.name for task in spec.tasks) if spec else (),
        state,
        report if finished and report.exists() else None,
        shortened(" ".join(why.split()), 400),
    )


def _end(store: Store, name: str) -> tuple[float, str, StudySpec | None]:
    """When a study was finished, or its folder written where that is not known; its state, and its
    specification where it can be read.
    """
    results, saved = store.study(name), _read(saved_study(store, name))
    date = (results / METADATA).stat().st_mtime
    try:
        metadata = read_metadata(results)
        date = metadata.get("finished", date)
        finished = open_study(store, name).study
    except DamagedError:
        return date, "damaged results", saved
    except PapaError:
        finished = None
    if finished is None or metadata.get("stage_version") != VERSION:
        return date, "finished by another version of PAPA", finished
    if saved is None or _results_of(saved) == _results_of(finished):
        return date, "finished", finished
    return date, "finished; changed since, and not finished again", finished


def _results_of(study: StudySpec) -> object:
    """What of a specification results depend on; the hub's branches become commits in a run."""
    document = study.model_dump(mode="json", exclude={"execution", "encoders"})
    return document, [encoder.name for encoder in study.encoders]


def _read(path: Path) -> StudySpec | None:
    try:
        return load_study(path)
    except PapaError:
        return None


def show_studies(store: Store, console: Console) -> None:
    """Print the studies of a store: a table in a terminal, elsewhere lines of values parted by
    tabs.
    """
    studies = stored_studies(store)
    if not studies:
        say(console, f"{store.address} holds no study yet")
        return
    rows = {study: _row(study) for study in studies}
    if not console.is_terminal:
        reported = [(*row, str(study.report or "")) for study, row in rows.items()]
        print_rows(console, [(*_HEADINGS, "Report"), *reported])
        return
    headings = (Column(heading, overflow="fold") for heading in _HEADINGS)
    print_table(console, headings, rows.values())
    for study in studies:
        if study.report:
            say(console, f"{study.name}: {study.report}")
        if study.failure or study.state != "finished":
            say(console, f"{study.name}: {_advice(store, study)}")


def _row(study: ListedStudy) -> tuple[str, ...]:
    state = "failed" if study.failure else study.state
    return study.name, _time(study.date), _few(study.encoders), _few(study.tasks), state


def _advice(store: Store, study: ListedStudy) -> str:
    path = saved_study(store, study.name)
    again = f"run 'papa run {path}'" if path.exists() else "run it again from its file"
    if study.failure:
        return f"failed: {study.failure}: {again} to go on"
    if study.state != NOT_FINISHED:
        return f"{study.state}: {again}"
    runs = "; a study runs in this store just now" if running(store) else ""
    return f"started {_time(study.date)} and not finished{runs}: {again} to go on"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _few(names: Iterable[str]) -> str:
    """Names without their owners, the first of them where there are many."""
    first, others = [Path(name).name for name in names][:3], len([*names]) - 3
    return ", ".join(first) + (f" and {others} more" if others > 0 else "")


def rebuild_report(store: Store, study: str, console: Console) -> None:
    """Write the report of a finished study again, from what it stored, and print where it is.

    Nothing else is computed. MLflow gets it with the next ``papa run``.
    """
    from papa.reporting.report import write_report

    found = open_study(store, study)
    name, metadata = found.manifest.study, read_metadata(found.folder)
    findings, tables = found.findings(), [*metadata["files"]]
    store.make()
    with TemporaryDirectory(dir=store.scratch) as kept:
        for table in tables:
            shutil.copyfile(found.folder / table, Path(kept, table))
        artifact = store.folder(metadata["stage"], metadata["key"])
        remove(artifact)
        with published(artifact, metadata) as folder:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
            write_report(folder, findings)
    place_results(store, name, store.reference(metadata["stage"], metadata["key"]))
    say(console, f"report   {store.study(name)}/report.html")
