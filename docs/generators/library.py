"""The reference of the library: what ``import papa`` offers, from its docstrings; a hook
of mkdocs.
"""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import papa
import papa.library

_HEAD = """# The library

What `import papa` offers; everything else is private.
[The guide](../library.md) shows the calls at work.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page, which mkdocstrings fills."""
    functions = sorted(name for name in papa.__all__ if name[0].islower())
    classes = sorted(name for name in papa.__all__ if name[0].isupper())
    names = (f"::: papa.{name}" for name in (*functions, *classes))
    content = "\n\n".join([_HEAD, str(papa.library.__doc__), *names])
    files.append(File.generated(config, "reference/library.md", content=content))
    return files
