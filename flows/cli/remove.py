"""``papa remove``: delete a study, and what only it needs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from papa.errors import ArtifactError, PapaError, SpecError, nearest_first, printable
from papa.flows.cli import options
from papa.flows.cli.lists import names_of_studies
from papa.flows.cli.options import argument, option
from papa.flows.progress import size_label

if TYPE_CHECKING:
    from papa.storage.store import Store


def remove(
    study: Annotated[str, argument(metavar="STUDY", help="Name of the study in the store.")],
    store: options.StoreAddress = options.DEFAULT_STORE,
    yes: Annotated[bool, option("--yes", help="Delete without asking.")] = False,
    verbose: options.Verbose = False,
) -> None:
    """Delete a study, its results, and the artifacts that no other finished study needs."""
    with options.one_sentence(verbose):
        from papa.storage import artifacts
        from papa.storage.locks import names_of_users
        from papa.storage.unused import Contents

        opened = options.marked_store(store)

        def alone() -> dict[str, int]:
            contents = Contents(opened)
            used, others = (contents.used_by(one) for one in (study.__eq__, study.__ne__))
            return {step: size for step, size in used.items() if step not in others}

        known, steps = names_of_studies(opened), alone()
        if not steps and study not in known:
            there = nearest_first(study, known)
            raise SpecError(f"there is no study '{study}' in {opened.address}: it has {there}")
        size = size_label(sum(steps.values()))
        what = f"{printable(study)} and {len(steps)} artifacts that only it needs, {size}"
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True)
        busy = names_of_users(opened)
        if busy:
            raise ArtifactError(
                f"a study uses {opened.address} ({busy}): nothing was deleted; run again when "
                "it has ended"
            )
        if alone() != steps:
            raise ArtifactError(
                f"the studies in {opened.address} changed meanwhile: nothing was deleted; run again"
            )
        # What made the results goes first: without it the others are what prune finds.
        for step in sorted(steps):
            artifacts.remove(f"{opened.artifacts}/{step}")
        if study in known:
            artifacts.remove(opened.study(study))
            copies = _copied_texts(opened, [study])
            others = [name for name in known if name != study]
            for name in copies - _copied_texts(opened, others):
                opened.studies.remove(name)
            for ending in (".yaml", ".failed", ".json"):
                opened.remove_study_file(f"{study}{ending}")
        typer.echo(f"Deleted {what}. Its records in MLflow and Prefect stay.")


def _copied_texts(store: Store, studies: Iterable[str]) -> set[str]:
    """The names of the texts that ``papa run --data`` copied for studies, beside their results."""
    from papa.spec import FilesSource
    from papa.spec.file import load_study
    from papa.tasks.inputs import named_texts

    names = set[str]()
    for study in studies:
        with suppress(PapaError):
            for text in named_texts(load_study(store.study(f"{study}.yaml"))):
                if isinstance(text.source, FilesSource):
                    names |= {text.source.train.name, text.source.validation.name}
    return {name for name in names if name.endswith((".train.jsonl", ".validation.jsonl"))}
