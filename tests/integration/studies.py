"""Studies as a person starts them, and what they left in their store."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from tests.flows.processes import PATIENCE_SECONDS
from tests.integration.service import S3Server, Service, started

Findings = dict[tuple[str, str], Any]


def reviews(name: str, rows: int, epochs: int, fractions: Sequence[float]) -> str:
    sizes = {"train_rows": rows, "validation_rows": 64, "slots": 64}
    task = {"name": "reviews", **sizes, "probe": {"epochs": epochs}}
    design = {"keep": fractions, "ranking": {"rows": 64, "epochs": 1}, "ranking_seeds": [0]}
    design["execution"] = {"shard_rows": 32, "batch_tokens": 512, "device": "cpu"}
    contents = {"name": name, "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": [task]}
    return json.dumps({**contents, "probe_seeds": [0], **design})


@contextmanager
def papa_run(
    folder: Path, study: str, environment: Mapping[str, str], *options: str
) -> Iterator[Service]:
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "study.yaml"
    written.write_text(study)
    with started(["papa", "run", written, *options], folder, environment) as process:
        yield process


def to_the_end(study: Service) -> None:
    study.process.wait(PATIENCE_SECONDS)
    assert study.process.returncode == 0, study.log.read_text()


def findings(address: str, storage: S3Server | None = None) -> Findings:
    """By stage and key: digests of corpora, averages and rankings, scores of probes."""
    files = storage.files if storage else fsspec.filesystem("file")
    root = address.removeprefix("s3://")
    findings_by_artifact: Findings = {}
    for path in files.glob(f"{root}/artifacts/*/*/metadata.json"):
        stage, key = path.split("/")[-3:-1]
        metadata = json.loads(files.cat_file(path))
        if stage in ("tokenise", "average", "train_lambda"):
            findings_by_artifact[stage, key] = metadata["files"]
        elif stage == "probe":
            folder = f"{path.rpartition('/')[0]}/{metadata['data']}"
            document = json.loads(files.cat_file(f"{folder}/scores.json"))
            scores = [(score["seed"], score["score"]) for score in document["scores"]]
            rest = document["unseen_share"], document["constant_heads"]
            findings_by_artifact[stage, key] = (scores, *rest)
    return findings_by_artifact
