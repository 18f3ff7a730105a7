"""Studies as a person starts them, and what they left in their store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.flows.processes import wait_until
from tests.integration.s3 import S3Server
from tests.integration.service import Service, started

SAME_FILES = ("tokenise", "average", "rank")
"""Stages whose files hold nothing but what they computed."""


@contextmanager
def papa_run(
    folder: Path, study: str, environment: Mapping[str, str], *options: str
) -> Iterator[Service]:
    """``papa run`` in the background; ended with the block.

    Args:
        folder: for its log and the study file.
        study: the study as YAML.
        environment: the services it uses.
        options: as on the command line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "study.yaml"
    written.write_text(study)
    with started(["papa", "run", written, *options], folder, environment) as process:
        yield process


def to_the_end(study: Service, seconds: float = 900) -> None:
    """Wait for a study; fail where it fails."""
    wait_until(
        lambda: study.process.poll() is not None,
        seconds,
        f"the study ends:\n{study.log.read_text()}",
    )
    assert study.process.returncode == 0, study.log.read_text()


def findings(address: str, storage: S3Server | None = None) -> dict[tuple[str, str], Any]:
    """What a store holds, by stage and key, without how long it took.

    Digests of files for corpora, averages and rankings; scores, exact to the bit, for probes.

    Args:
        address: the store.
        storage: whose keys reach it; None for a folder.
    """
    from fsspec.core import url_to_fs

    keys = storage and {
        "key": storage.owner[0],
        "secret": storage.owner[1],
        "endpoint_url": storage.endpoint,
    }
    files, root = url_to_fs(
        address, **(keys or {}), **({"skip_instance_cache": True} if keys else {})
    )
    found: dict[tuple[str, str], Any] = {}
    for path in files.glob(f"{root}/artifacts/*/*/metadata.json"):
        stage, key = path.split("/")[-3:-1]
        metadata = json.loads(files.cat_file(path))
        if stage in SAME_FILES:
            found[stage, key] = metadata["files"]
        elif stage == "probe":
            folder = (
                f"{path.rpartition('/')[0]}/{metadata['digest']}"
                if storage
                else path.rpartition("/")[0]
            )
            document = json.loads(files.cat_file(f"{folder}/scores.json"))
            scores = [(one["seed"], one["score"]) for one in document["scores"]]
            found[stage, key] = (scores, document["unseen_share"], document["constant_heads"])
    return found
