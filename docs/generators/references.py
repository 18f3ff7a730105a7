"""Write the references in docs/reference: python -m docs.generators.references"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "reference"


def reference_pages() -> dict[str, str]:
    """Return the references by file name, as Markdown."""
    # Typer's help follows the terminal and the store of whoever writes it.
    os.environ.pop("PAPA_STORE", None)
    from docs.generators.command_line import command_page
    from docs.generators.library import library_page
    from docs.generators.study_file import columns_page, study_page

    return {
        "study.md": study_page(),
        "commands.md": command_page(),
        "library.md": library_page(),
        "columns.md": columns_page(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in reference_pages().items():
        (FOLDER / name).write_text(text)
