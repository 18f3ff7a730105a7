"""``papa report``: a finished study's report, again."""

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from papa.errors import DamagedError
from papa.flows.cli import options
from papa.storage.artifacts import published, read_metadata
from papa.storage.files import Files
from papa.storage.locks import in_use
from papa.tasks.manifest import tables_of
from papa.tasks.study_files import place_results


def report(study: options.Finished, store: options.StoreAddress = options.DEFAULT_STORE) -> None:
    """Write a finished study's report again from its stored results."""
    with options.one_sentence():
        finished = options.open_finished(store, study)
        # torch and a renderer of figures, which help and a refusal do without.
        from papa.reporting.report import write_report
        from papa.tasks.findings import findings_of

        opened = finished.store
        name = finished.manifest.study
        metadata = read_metadata(finished.folder)
        opened.make()
        with in_use(opened), TemporaryDirectory(dir=opened.scratch) as scratch:
            for table in tables_of(metadata):
                shutil.copyfile(finished.folder / table, Path(scratch, table))
            write_report(Path(scratch), findings_of(finished))
            artifact = opened.folder(metadata["stage"], metadata["key"])
            superseded = ""
            with suppress(DamagedError):
                superseded = read_metadata(artifact)["data"]
            with published(artifact, metadata, replace=True) as folder:
                shutil.copytree(scratch, folder, dirs_exist_ok=True)
            if superseded:
                Files(artifact).remove(superseded)
        place_results(opened, name, opened.reference(metadata["stage"], metadata["key"]))
        # MLflow gets it with the next ``papa run``.
        typer.echo(f"report   {opened.study_path(name)}/report.html")
