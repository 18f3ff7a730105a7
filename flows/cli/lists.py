"""``papa list``: the studies of a store."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from papa.errors import ArtifactError, DamagedError, PapaError, SpecError, shortened
from papa.flows.cli import options
from papa.flows.progress import size_label
from papa.spec.file import load_study
from papa.storage.artifacts import METADATA, read_metadata
from papa.storage.locks import active_runs
from papa.storage.store import Store
from papa.storage.unused import Contents
from papa.tasks.manifest import open_study
from papa.tasks.study_files import fetch_studies

_HEADINGS = ("Study", "Date", "Encoders", "Tasks", "State", "Size", "Report")


def list_studies(
    store: options.StoreAddress = options.DEFAULT_STORE, as_json: options.AsJson = False
) -> None:
    """List the studies of a store with their states and reports."""
    with options.one_sentence():
        studies = stored_studies(options.marked_store(store))
        if as_json:
            options.print_json([study.document() for study in studies])
        else:
            options.print_table(_HEADINGS, [study.cells() for study in studies])


@dataclass(frozen=True)
class StoredStudy:
    """A study that was started in a store.

    Attributes:
        date: When it was finished, or else when it was started or failed.
        encoders, tasks: Their names, empty where its file cannot be read.
        state: "finished", "running", "not finished", "failed", "damaged results", or "finished by
            another version of PAPA".
        reason: Why it failed; empty in other states.
        bytes: What its artifacts take on the disk, shared ones included.
        report: The page of its results on this machine, if it is there.
    """

    name: str
    date: datetime
    encoders: Sequence[str]
    tasks: Sequence[str]
    state: str
    reason: str
    bytes: int
    report: Path | None

    def cells(self) -> tuple[str, ...]:
        """Return what a table shows of it, by ``_HEADINGS``."""
        return (
            self.name,
            self.date.strftime("%Y-%m-%d %H:%M %Z"),
            ", ".join(self.encoders),
            ", ".join(self.tasks),
            f"{self.state}: {shortened(self.reason, 400)}" if self.reason else self.state,
            size_label(self.bytes) if self.bytes else "",
            str(self.report or ""),
        )

    def document(self) -> dict[str, object]:
        """Return what JSON has of it."""
        report = str(self.report) if self.report else None
        return asdict(self) | {"date": self.date.isoformat(timespec="seconds"), "report": report}


def stored_studies(store: Store) -> list[StoredStudy]:
    """Return the studies that were started in a store, the latest first."""
    contents = Contents(store)
    running = {run.study for run in active_runs(store)}
    studies = (_stored_study(store, name, contents, running) for name in names_of_studies(store))
    return sorted(studies, key=lambda study: study.date, reverse=True)


def names_of_studies(store: Store) -> list[str]:
    """Return the studies that were started in a store."""
    fetch_studies(store)
    folder = store.study_path("")
    names = {path.parent.name for path in folder.glob(f"[!.]*/{METADATA}")}
    for kind in ("yaml", "failed"):
        names |= {path.name.removesuffix(f".{kind}") for path in folder.glob(f"[!.]*.{kind}")}
    return sorted(names)


def _stored_study(
    store: Store, name: str, contents: Contents, running: Collection[str]
) -> StoredStudy:
    results = store.study_path(name)
    saved = store.study_path(f"{name}.yaml")
    failed = store.study_path(f"{name}.failed")
    study = None
    state = "finished"
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
    # A study that was finished and is running again has the date of its results.
    dated = (saved, failed) if state == "not finished" else (results / METADATA, saved, failed)
    date = next(path for path in dated if path.exists()).stat().st_mtime
    with suppress(PapaError):
        date = read_metadata(results).get("finished", date)
    reason = ""
    if failed.is_file():
        state = "failed"
        reason = " ".join(failed.read_text(encoding="utf-8", errors="replace").split())
    if name in running:
        state = "running"
        reason = ""
    report = results / "report.html"
    return StoredStudy(
        name=name,
        date=datetime.fromtimestamp(date).astimezone(),
        encoders=[Path(encoder.name).name for encoder in study.encoders] if study else [],
        tasks=[task.name for task in study.tasks] if study else [],
        state=state,
        reason=reason,
        bytes=sum(contents.used_by(name.__eq__).values()),
        report=report if report.exists() else None,
    )
