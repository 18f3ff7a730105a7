"""Averages over a sample of the training rows, on real weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import papa


def test_an_average_over_few_rows_is_of_a_part_of_the_text(shallow: str, tmp_path: Path) -> None:
    encoder = papa.load_encoder(shallow, slots=48)
    kinds = ["average", {"kind": "average", "rows": 30}, {"kind": "average", "rows": 2}]
    found = papa.measure(
        encoder,
        "reviews",
        constants=kinds,
        orders=["first_to_last"],
        fractions=[0],
        seeds=[0],
        train_rows=60,
        validation_rows=20,
        store=tmp_path / "store",
        progress=False,
    )
    names = ["average", "average:30 rows", "average:2 rows"]
    held = [load_file(path) for path in tmp_path.glob("store/artifacts/average/*/*/*.safetensors")]
    held.sort(key=lambda tensors: -tensors["counts"].max())
    counts = [tensors["counts"] for tensors in held]
    assert [own[0, 0] for own in counts] == [60, 30, 2], "every text has [CLS]"
    assert (counts[2] <= counts[1]).all(), "the rows of the smaller sample are in the larger one"
    assert (counts[1] <= counts[0]).all()
    unseen = found.results.groupby("constants", sort=False)["unseen_share"].first()
    assert unseen[names].is_monotonic_increasing
    assert unseen["average:2 rows"] > 0
    whole, _, few = (tensors["matrices"] for tensors in held)
    assert np.abs(whole - few).max() > 0.01
