"""What says that a folder, or what lies behind a URI, is a store: the file ``papa-store.json`` in its root.

Only what says so is ever cleaned up. ``papa run`` writes the file into a new or empty place, and into a store of a
PAPA that wrote none yet, which shows by a finished artifact that it is one; nothing else becomes a store.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

from papa.artifacts import metadata_below, stored_below
from papa.errors import ArtifactError
from papa.filesystem import filesystem, is_uri, read, told

MARKER = "papa-store.json"
FORMAT = 1
STAGE = r"[a-z]+(?:-[a-z]+)*"
KEY = r"[0-9a-f]{64}"
_BEFORE = re.compile(r"\.papa-[0-9a-f]{32}|\.?mlflow\.db.*|mlartifacts")
"""What may lie in the root before the marker does: what another run puts for a moment (a marker not yet renamed, a
question whether it may write), and MLflow's runs, as ``papa compare`` and ``mlflow`` make their database, too."""


def is_marked(address: str) -> bool:
    """Whether ``address`` says that it is a store.

    Raises:
        ArtifactError: its marker is damaged, or is of another format.
    """
    files, root = filesystem(address)
    with told(address):
        data = read(files, f"{root}/{MARKER}")
    if data is None:
        return False
    try:
        found = json.loads(data)["format"]
    except (ValueError, TypeError, KeyError):
        raise ArtifactError(
            f'{address}/{MARKER} is damaged: if this is a PAPA store, write {{"format": {FORMAT}}} into it'
        ) from None
    if found != FORMAT:
        raise ArtifactError(
            f"{address} is a store of format {found}, this PAPA knows format {FORMAT}: use the version that made it"
        )
    return True


def mark(address: str) -> None:
    """Make ``address`` say that it is a store; a folder must be there.

    Raises:
        ArtifactError: it holds something else.
    """
    if is_marked(address):
        return
    # Another run marks before it writes anything else: what is neither empty nor marked by now was not its doing.
    if not (_is_empty(address) or _shows_a_store(address) or is_marked(address)):
        raise ArtifactError(
            f"{address} holds other things and no PAPA store ({MARKER} is missing): "
            "give a new or empty folder, or another prefix, with --store"
        )
    content = (json.dumps({"what": "a store of PAPA", "format": FORMAT}) + "\n").encode()
    if is_uri(address):
        files, root = filesystem(address)
        with told(address):
            files.pipe_file(f"{root}/{MARKER}", content)
    else:
        aside = Path(address) / f".papa-{uuid.uuid4().hex}"
        aside.write_bytes(content)
        aside.replace(Path(address) / MARKER)


def _is_empty(address: str) -> bool:
    if is_uri(address):
        paths = (file.path for file in stored_below(address))
    else:
        # One after the other: the first file is enough to know, however many follow.
        places = (place for place in Path(address).rglob("*") if place.is_symlink() or not place.is_dir())
        paths = (place.relative_to(address).as_posix() for place in places)
    return all(_BEFORE.fullmatch(path.partition("/")[0]) for path in paths)


def _shows_a_store(address: str) -> bool:
    """Whether a finished artifact lies where a store keeps it."""
    artifacts = f"{address}/artifacts"
    stages = {file.path.partition("/")[0] for file in stored_below(artifacts)}
    return any(
        re.fullmatch(KEY, name)
        for stage in sorted(stages)
        if re.fullmatch(STAGE, stage)
        for name in metadata_below(f"{artifacts}/{stage}")
    )
