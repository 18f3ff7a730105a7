"""What Prefect, Ray and MLflow cost around the work: starting, a run as a whole, and each further
cell.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.rows import Row
from benchmarks.timing import Comparison, repeated, seconds
from papa.encoders.files import TOKENIZER_FILES
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.spec import EncoderSpec
from papa.storage.store import Store

HELP_SECONDS, TINY_SECONDS, CACHED_SECONDS, CELL_SECONDS = 0.5, 12.0, 6.0, 0.5
NUMBERS = itertools.count()
ROWS = {"train_rows": 16, "validation_rows": 8}
TASK = {"name": "reviews", "slots": 16, **ROWS, "probe": {"epochs": 1}}
TINY: dict[str, Any] = {"tasks": [TASK], "seeds": [0]}
PLAIN = {"constants": ["identity"], "orders": ["first_to_last"]}
ONE = {"encoders": [EMBEDDED], **PLAIN, "fractions": [0.5]}
LAYERS, HEADS = 8, 32
SIDES: dict[str, Any] = {
    "constants": ["average", "identity", "toeplitz", "zeros"],
    "orders": ["first_to_last", "last_to_first"],
}
SIDE = 8
"""Cells at each fraction."""


def papa(*arguments: str) -> float:
    """How many seconds a command takes."""
    command = [str(Path(sys.executable).parent / "papa"), *arguments]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def run_study(study: dict[str, Any], store: Path) -> float:
    """How many seconds ``papa run`` takes on one worker."""
    path = store.parent / f"{store.name}.yaml"
    path.write_text(yaml.safe_dump({"name": "benchmark", **TINY, **study}))
    return papa("run", str(path), "--store", str(store), "--workers", "1")


def new_store(folder: Path) -> Path:
    return folder / f"study-{next(NUMBERS)}"


def cached(folder: Path) -> Comparison:
    """A study that is there already."""
    store = new_store(folder)
    run_study(ONE, store)
    return repeated(lambda: (run_study(ONE, store), CACHED_SECONDS))


@cache
def many_heads(folder: Path) -> str:
    """The folder of a tiny encoder with random weights and 256 heads."""
    from transformers import BertConfig, BertModel

    folder = folder / "many-heads"
    embedded = Path(resolve_encoder(EncoderSpec(name=EMBEDDED)).folder)
    shape: dict[str, Any] = {"hidden_size": 2 * HEADS, "intermediate_size": HEADS}
    config = BertConfig(num_hidden_layers=LAYERS, num_attention_heads=HEADS, **shape)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (embedded / name).is_file():
            shutil.copy(embedded / name, folder)
    return str(folder)


def around(cells: int, folder: Path) -> float:
    """Seconds of a study with this many cells on a new store, without those of the cells'
    own work.
    """
    fractions = [index / (LAYERS * HEADS) for index in range(1, cells // SIDE + 1)]
    store = new_store(folder)
    spent = run_study({"encoders": [many_heads(folder)], **SIDES, "fractions": fractions}, store)
    own = [artifact["seconds"] for artifact in Store(store).metadata("probe")]
    if len(own) != cells:
        raise RuntimeError(f"expected a study of {cells} cells, found {len(own)}")
    return spent - sum(own)


def per_cell(fewer: int, more: int, folder: Path) -> Comparison:
    """The seconds of each further cell between two sizes of a study, against the limit."""

    def limit_by_slope(large: np.ndarray, small: np.ndarray, axis: int = -1) -> np.ndarray:
        slope = (large.min(axis=axis) - small.min(axis=axis)) / (more - fewer)
        return CELL_SECONDS / np.maximum(slope, 1e-3)

    found = repeated(lambda: (around(more, folder), around(fewer, folder)), ratio=limit_by_slope)
    return replace(found, ours=CELL_SECONDS / found.ratio, plain=CELL_SECONDS)


def pipeline_rows(folder: Path) -> Iterator[Row]:
    """Seconds against the limits."""
    yield Row("start", "papa --help", 1.0, lambda: repeated(lambda: (papa("--help"), HELP_SECONDS)))
    tiny = partial(repeated, lambda: (run_study(ONE, new_store(folder)), TINY_SECONDS))
    yield Row("start", "a study of one cell, whole run", 1.0, tiny)
    yield Row("start", "the same study, all cached", 1.0, partial(cached, folder))
    yield Row("cells", "each further cell, from 16 to 144", 1.0, partial(per_cell, 16, 144, folder))
    name = "each further cell, from 400 to 2000"
    yield Row("cells-2000", name, 1.0, partial(per_cell, 400, 2000, folder), on_request=True)
