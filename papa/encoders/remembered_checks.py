"""Checks of encoders that passed before, and what their tokenizers counted, so that a study that
was looked at before imports neither torch nor transformers.

What a check finds depends on the bytes it looks at, on the libraries that look and on PAPA's own
code: all of them are in the key under which it is remembered. Only what passed is remembered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from papa.storage.metadata import sha256_of_file, sha256_of_json
from papa.storage.remembered import recall, remember

_LIBRARIES = ("torch", "transformers", "tokenizers")
_CODE = ("encoders/*.py", "corpora/*.py")
"""PAPA's files that decide what passes and how text is laid out."""
Finding = TypeVar("Finding")
_one_at_a_time = threading.Lock()
"""Checks import large libraries: two threads at once find modules half made."""


def remembered(what: str, content: dict[str, Any], check: Callable[[], Finding]) -> Finding:
    """What ``check`` found for this content before, a JSON value other than None, else what
    it finds now; ``content`` are digests of all that it looks at, and its settings.
    """
    key = {"check": what, "content": content, "made by": _makers()}
    found = recall(key)
    if found is None:
        with _one_at_a_time:
            found = check()
        # A check that raises leaves nothing: what failed is looked at again.
        remember(key, found)
    return found


@cache
def _makers() -> dict[str, str]:
    root = Path(__file__).parents[1]
    files = {
        str(path.relative_to(root)): path
        for pattern in _CODE
        for path in sorted(root.glob(pattern))
    }
    code = sha256_of_json({name: sha256_of_file(path) for name, path in files.items()})
    return {**{name: version(name) for name in _LIBRARIES}, "code": code}
