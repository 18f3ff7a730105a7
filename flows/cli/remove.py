"""``papa remove``: delete a study, and what only it needs."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated

import typer

from papa.errors import ArtifactError, PapaError, SpecError, nearest_first, printable
from papa.flows.cli import options
from papa.flows.cli.lists import names_of_studies
from papa.flows.cli.options import argument, option
from papa.flows.progress import size_label
from papa.spec import FilesSource
from papa.spec.file import load_study
from papa.storage import artifacts
from papa.storage.store import Store
from papa.storage.unused import Contents
from papa.tasks.inputs import named_corpora


def remove(
    study: Annotated[str, argument(metavar="STUDY", help="Name of the study in the store.")],
    store: options.StoreAddress = options.DEFAULT_STORE,
    yes: Annotated[bool, option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete a study, its results, and the artifacts that no other finished study needs."""
    with options.one_sentence():
        opened = options.marked_store(store)

        def steps_of_study() -> dict[str, int]:
            """Return the steps that no other study uses, with their bytes."""
            contents = Contents(opened)
            elsewhere = contents.used_by(lambda name: name != study)
            used = contents.used_by(lambda name: name == study)
            return {step: size for step, size in used.items() if step not in elsewhere}

        known = names_of_studies(opened)
        steps = steps_of_study()
        if not steps and study not in known:
            there = nearest_first(study, known)
            raise SpecError(f"there is no study '{study}' in {opened.address}: it has {there}")
        size = size_label(sum(steps.values()))
        deleted = f"{printable(study)} and {len(steps)} artifacts that only it needs, {size}"
        if not yes:
            typer.confirm(f"Delete {deleted}?", abort=True)
        options.refuse_deletion_in_use(opened)
        if steps_of_study() != steps:
            raise ArtifactError(
                f"the studies in {opened.address} changed meanwhile: nothing was deleted; run again"
            )
        # What computed the results goes first: without it the others are what prune finds.
        for step in sorted(steps):
            artifacts.remove(f"{opened.artifacts}/{step}")
        if study in known:
            artifacts.remove(opened.study_path(study))
            copies = _names_of_copied_data(opened, [study])
            others = [name for name in known if name != study]
            for name in copies - _names_of_copied_data(opened, others):
                opened.studies.remove(name)
            for ending in (".yaml", ".failed", ".json"):
                opened.remove_study_file(f"{study}{ending}")
        typer.echo(f"Deleted {deleted}. Its records in MLflow and Prefect stay.")


def _names_of_copied_data(store: Store, studies: Iterable[str]) -> set[str]:
    """Return the names of the texts that ``papa run --data`` copied for studies, beside their
    results.
    """
    names: set[str] = set()
    for study in studies:
        with suppress(PapaError):
            for corpus in named_corpora(load_study(store.study_path(f"{study}.yaml"))):
                if isinstance(corpus.source, FilesSource):
                    names |= {corpus.source.train.name, corpus.source.validation.name}
    return {name for name in names if name.endswith((".train.jsonl", ".validation.jsonl"))}
