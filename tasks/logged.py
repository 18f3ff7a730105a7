"""What of a finished study MLflow holds: its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from papa.storage.artifacts import verify
from tasks.track import RUNS


def logged_runs(folder: Path) -> dict[str, Any]:
    """The runs of a finished study, as ``runs.json`` of its artifact holds them."""
    verify(folder, RUNS)
    document: dict[str, Any] = json.loads((folder / RUNS).read_text())
    return document
