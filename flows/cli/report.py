"""``papa report`` and ``papa list``."""

from __future__ import annotations

from rich.console import Console

from flows.cli.options import (
    DEFAULT_STORE,
    Finished,
    StoreAddress,
    Verbose,
    one_sentence,
    open_store,
)


def report(study: Finished, store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Build a finished study's report again, from what it stored."""
    with one_sentence(verbose):
        from flows.cli.studies import rebuild_report

        rebuild_report(open_store(store), study, Console())


def list_studies(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """List the studies of a store, how far they are, and where their reports are."""
    with one_sentence(verbose):
        from flows.cli.studies import show_studies

        show_studies(open_store(store), Console())
