"""The files of a parent run: constant matrices, head orders, the study's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from papa.artifacts import ArtifactReference, read_metadata, verify
from tasks.rank import ORDERS
from tasks.tracking_groups import Group

if TYPE_CHECKING:
    from mlflow import MlflowClient

RESULTS = "results"


def log_files(client: MlflowClient, run: str, group: Group, results: ArtifactReference) -> None:
    """Attach to a parent run what it used and the study's results; the results replace older ones.

    Args:
        client: of the MLflow to log to.
        run: the parent's id.
        group: what it stands for.
        results: the study's results.

    Raises:
        ArtifactError: a file of theirs is damaged.
    """
    have = {file.path for kind in ("constants", "head_order") for file in client.list_artifacts(run, kind)}
    for label, one in zip((*group.constants, *group.rankings), group.artifacts, strict=True):
        folder = one.folder
        files = read_metadata(folder)["files"]
        kind = "head_order" if ORDERS in files else "constants"
        place = f"{kind}/{label.replace(':', '.')}"
        if place in have:
            continue
        verify(folder)
        for name in sorted(files):
            if name == ORDERS or name.endswith(".safetensors"):
                client.log_artifact(run, str(folder / name), place)
    verify(results.folder)
    client.log_artifacts(run, str(results.folder), RESULTS)
