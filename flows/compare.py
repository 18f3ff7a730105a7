"""Studies side by side, from what MLflow knows of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from papa.errors import SpecError
from papa.reporting.comparison import compared, write_comparison
from papa.reporting.terminal import summary_table
from tasks.tracking_results import logged_results


def compare_studies(studies: list[str], address: str, to: Path | None, console: Console) -> None:
    """Print the table of some studies and write it, with its figure, to a folder.

    Args:
        studies: their names.
        address: MLflow's tracking URI.
        to: the folder; None writes nothing.
        console: where to print.

    Raises:
        PapaError: a study is not in MLflow, MLflow cannot be used, or the folder cannot be written.
    """
    comparison = compared(logged_results(address, list(dict.fromkeys(studies))))
    console.print(summary_table(comparison))
    if to is None:
        return
    try:
        write_comparison(to, comparison)
    except OSError as error:
        raise SpecError(f"{to} cannot be written ({error.strerror}): give another folder with --to") from None
    console.print(f"figure  {to}/compare.png, compare.svg", soft_wrap=True, highlight=False)
    console.print(f"table   {to}/compare.csv", soft_wrap=True, highlight=False)
