"""What a study calls code of the user's own: ``module:name``, of a file that the command line
gives with ``--code``.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?!(?:scores|reversed):)([A-Za-z_]\w*):[A-Za-z_]\w*", re.ASCII)


def module_of(name: object) -> str | None:
    """The file, without ``.py``, that a name is of; None where it names no code."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found else None
