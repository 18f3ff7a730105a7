"""Files that make their parser crash: the first read costs its process, every later one is a sentence.

Parsers in other languages may end the whole process with a fatal signal. A process of its own for each read would take
longer than the read. So a read leaves a note in this machine's cache while it is under way::

    <cache>/reading/<digest of the file's status>.<process>   a read by that process

A note whose process is gone may stand for a crash, or for a process that was killed meanwhile. The next read of the
same file finds out, in a process of its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from papa.errors import PapaError
from papa.processes import Process
from papa.storage.cache import cache_folder
from papa.storage.metadata import sha256_of_json
from papa.storage.remembered import status_of

Read = TypeVar("Read")
_PROGRAM = (
    "import importlib, json, pathlib, sys\n"
    "module, name, path, *arguments = json.loads(sys.argv[1])\n"
    "getattr(importlib.import_module(module), name)(pathlib.Path(path), *arguments)\n"
)


def guarded(function: Callable[..., Read], path: Path, *arguments: Any, error: type[PapaError]) -> Read:
    """``function(path, *arguments)``, unless it crashes.

    Args:
        function: of a module, so that another process finds it.
        path: what it parses, a file or a folder.
        arguments: JSON values.
        error: what is raised.

    Raises:
        PapaError: an earlier read of this file ended with its process, and so did this one in a process of its own.
    """
    notes, key = cache_folder() / "reading", sha256_of_json(status_of(path))
    left = [note for note in notes.glob(f"{key}.*") if _is_left(note)]
    if left:
        call = json.dumps([function.__module__, function.__qualname__, str(path), *arguments])
        ended = subprocess.run([sys.executable, "-c", _PROGRAM, call], capture_output=True).returncode
        if ended < 0:
            raise error(
                f"{path} makes its parser crash ({signal.Signals(-ended).name}, in a process of its own): mend it, or "
                "write it again with another program or in another format"
            )
        _remove(left)
    note = notes / f"{key}.{Process.this()}"
    # A cache that cannot be written guards nothing.
    with suppress(OSError):
        notes.mkdir(parents=True, exist_ok=True)
        note.touch()
    try:
        return function(path, *arguments)
    finally:
        _remove([note])


def _is_left(note: Path) -> bool:
    """Whether the process that a note is of is gone."""
    process = Process.parse(note.name.partition(".")[2])
    return process is not None and process.gone


def _remove(notes: list[Path]) -> None:
    for note in notes:
        with suppress(OSError):
            note.unlink()
