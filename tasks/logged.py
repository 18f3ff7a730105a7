"""What of a finished study MLflow holds: its runs."""

from __future__ import annotations

import json
from typing import Any

from papa.storage.artifacts import reading, verify
from papa.study.store import Store
from tasks.links import run_links
from tasks.mlflow import without_password
from tasks.track import RUNS, Track


def logged_runs(track: Track, store: Store) -> dict[str, Any]:
    """The runs of a finished study, as ``runs.json`` of its artifact holds them; where they are the
    step knows, whatever the file says.
    """
    found = track.reference(store)
    verify(found.folder, RUNS)
    with reading(found.path):
        document = json.loads((found.folder / RUNS).read_text())
        document["address"] = without_password(track.address)
        run_links(document)
        return dict(document)
