"""The cost model of ``papa plan`` against real studies on the embedded encoder, on one worker and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.setting import DATA
from papa.encoders.reference import EMBEDDED
from tasks.store import Store

STUDY: dict[str, Any] = {
    "encoders": [EMBEDDED],
    "constants": ["average"],
    "orders": ["lambda", "last_to_first"],
    "fractions": [1, 0.5, 0.25, 0],
    "seeds": [0, 1],
    "ranking": {"epochs": 1},
    "execution": {"shard_rows": 64},
}
COLA = {"name": "cola", "source": {"kind": "files", "train": "cola/train.jsonl", "validation": "cola/validation.jsonl"}}
UD = {
    "name": "ud_pos",
    "source": {"kind": "files", "train": "ud_ewt/train.jsonl", "validation": "ud_ewt/validation.jsonl"},
    "columns": {"words": "tokens", "label": "pos_tags"},
    "labels": None,
}
RTE = {"name": "rte", "source": {"kind": "files", "train": "rte/train.jsonl", "validation": "rte/validation.jsonl"}}


def document(task: Mapping[str, Any], rows: int, epochs: int) -> dict[str, Any]:
    """A study of one task on some of its rows."""
    source = {**task["source"]}
    source |= {split: str(DATA / source[split]) for split in ("train", "validation")}
    probe = {"epochs": epochs, "learning_rate": 5e-4, "batch_size": 16}
    sized = {"train_rows": rows, "validation_rows": rows // 4, "probe": probe}
    return {"name": "measured", **STUDY, "tasks": [{**task, "labels": None, "source": source, **sized}]}


def run(task: Mapping[str, Any], rows: int, epochs: int, workers: int, folder: Path) -> Store:
    """Run it in a new store."""
    folder.mkdir(parents=True)
    path, store = folder / "study.yaml", folder / "store"
    path.write_text(yaml.safe_dump(document(task, rows, epochs)))
    papa = Path(sys.executable).parent / "papa"
    command = [str(papa), "run", str(path), "--store", str(store), "--workers", str(workers)]
    with (folder / "log").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    return Store(store)


def found(store: Store) -> dict[str, list[tuple[float, float]]]:
    """Of every step the operations it was planned with, and the seconds of its workers, by stage."""
    steps: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for stage in ("average", "rank", "baseline", "probe"):
        for metadata in store.metadata(stage):
            steps[stage].append((metadata["flops"], metadata["worker_seconds"]))
    return steps


if __name__ == "__main__":
    name, rows, epochs, workers, place = sys.argv[1:]
    task = {"cola": COLA, "ud": UD, "rte": RTE}[name]
    store = run(task, int(rows), int(epochs), int(workers), Path(place))
    print(
        name,
        rows,
        epochs,
        workers,
        json.dumps({k: [(f / 1e9, round(s, 2), round(f / 1e9 / s)) for f, s in v] for k, v in found(store).items()}),
    )
