"""Formulas as MathML, which browsers show without a script: a hook of mkdocs.

Pages hold them as ``$…$`` and ``$$…$$``, as GitHub reads them; arithmatex marks them.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put MathML where formulas are marked."""
    return _MARKED.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    block = found[2] == "["
    formula = convert(html.unescape(found[3]).strip(), display="block" if block else "inline")
    return f'<div class="formula">{formula}</div>' if block else formula
