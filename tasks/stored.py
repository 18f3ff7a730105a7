"""A study file that lies in a store: whoever may write to the store may have written it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from papa.errors import SpecError, joined
from papa.spec import FilesSource, StudySpec
from papa.spec.file import load_study, read_yaml
from papa.spec.orders import module_of, scores_in
from papa.storage.store import MARKER
from papa.tasks.inputs import named_corpora


def load_to_run(
    path: Path, overrides: Sequence[str] = (), allowed: Sequence[Path] = ()
) -> StudySpec:
    """Load a study to run it, as ``load_study`` and ``check_stored`` do."""
    study = load_study(path, overrides)
    check_stored(path, study, allowed)
    return study


def check_stored(path: Path, study: StudySpec, allowed: Sequence[Path]) -> None:
    """Raise a SpecError where a study's file lies in a store and it reads files that lie neither
    there nor in ``allowed``, files and folders: what is computed from them lands in the store,
    where others read it.
    """
    folders = path.resolve().parents
    store = next((folder for folder in folders if (folder / MARKER).is_file()), None)
    if store is None:
        return
    roots = [store, *(root.expanduser().resolve() for root in allowed)]
    files = [*_local_files(study), *_files_of_scores(path, study)]
    outside = [file for file in files if not any(map(file.is_relative_to, roots))]
    if outside:
        raise SpecError(
            f"{path} is in the store {store} and names {joined(map(str, outside))}, outside "
            "of it: if users of the store may see results from these files, add "
            f"--allow-source {outside[0]} (or a folder); or run the study's own file outside "
            "of the store"
        )


def _local_files(study: StudySpec) -> Iterator[Path]:
    """Yield the files and folders on this machine that a study names, without links."""
    for corpus in named_corpora(study):
        if isinstance(corpus.source, FilesSource):
            yield corpus.source.train
            yield corpus.source.validation
    for encoder in study.encoders:
        if Path(encoder.name).is_absolute():
            yield Path(encoder.name)
    if study.reference:
        yield study.reference


def _files_of_scores(path: Path, study: StudySpec) -> Iterator[Path]:
    """Yield the files of head scores that were read: their scores are not in the study's file."""
    document = read_yaml(path.read_text(encoding="utf-8"), str(path))
    stored_names = {entry["name"] for entry in document.get("scores") or ()}
    for name in map(scores_in, study.orders):
        if name and name not in stored_names and not module_of(name):
            yield (path.parent / Path(name).expanduser()).resolve()
