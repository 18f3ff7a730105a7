"""Exports with constant heads and in 8 bits: score, fidelity and speed, on three uses of MiniLM:
``python -m benchmarks.exports``.

Each study is run, and half of its heads are exported; what is printed is the card's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pipeline import papa
from benchmarks.setting import task_entry
from papa.encoders.reference import EMBEDDED
from papa.spec.document import write_yaml

SIZES = {"train_rows": 800, "validation_rows": 400}
EMBEDDINGS: dict[str, Any] = {
    "name": "embeddings",
    "kind": "text",
    "head": "own",
    "source": {"kind": "embedded", "name": "movie-reviews"},
    "columns": {"text": "text"},
    "metric": "nearest_10",
    "slots": 64,
}


def studies() -> dict[str, dict[str, Any]]:
    """One for each use: a sentiment, a judgement of grammar, and the encoder's own embeddings."""
    shared = {
        "encoders": [EMBEDDED],
        "fractions": [1, 0.5],
        "seeds": [0, 1, 2, 3, 4],
        "ranking": {"rows": 400},
    }
    tasks = {"reviews": {"name": "reviews"}, "cola": task_entry("cola"), "embeddings": EMBEDDINGS}
    return {
        name: {"name": name, **shared, "tasks": [{**task, **SIZES}]} for name, task in tasks.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description=__doc__)
    every = ", ".join(studies())
    parser.add_argument("names", nargs="*", help=f"of {every}; all, if none is given")
    names = parser.parse_args().names or list(studies())
    with TemporaryDirectory() as folder:
        for name in names:
            path, export = Path(folder) / f"{name}.yaml", Path(folder) / name
            path.write_text(write_yaml({"name": name, **studies()[name]}))
            stored = ("--store", str(Path(folder) / "store"))
            ran = papa("run", str(path), *stored)
            forms = ("--int8", "--onnx", "--to", str(export))
            exported = papa("export", name, "--fraction", "0.5", *stored, *forms)
            print(f"# {name}: run in {ran:.0f} s, exported in {exported:.0f} s\n")
            print((export / "README.md").read_text(), flush=True)


if __name__ == "__main__":
    main()
