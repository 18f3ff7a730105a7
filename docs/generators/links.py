"""Links to notebooks become links to the pages made of them: a hook of mkdocs."""

from __future__ import annotations

import posixpath
import re
from pathlib import PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_TARGET = re.compile(r"(?<=\]\()[^)#\s]+(?=[)#])")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def to_page(target: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, target[0]))
        if path.endswith(".ipynb"):
            return posixpath.relpath(f"docs/notebooks/{PurePosixPath(path).stem}.md", folder)
        return target[0]

    return _TARGET.sub(to_page, markdown)
