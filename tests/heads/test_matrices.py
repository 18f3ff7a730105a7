"""Constant matrices that depend on no text, written out, and what is made of an average, by hand
and in loops.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.errors import ArtifactError
from papa.heads import kinds
from papa.heads.constants import FILE, ConstantMatrices, control
from papa.heads.kinds import Averages, low_rank, relative
from papa.models.reference import EMBEDDED, resolve_encoder
from papa.spec import EncoderSpec
from papa.storage.artifacts import verified


def picture(matrix: np.ndarray) -> list[str]:
    return ["".join("x" if entry else "." for entry in row) for row in matrix]


def test_fixed_patterns() -> None:
    assert torch.equal(control("identity", 2, 3, 4).matrices[1, 2], torch.eye(4))
    assert torch.equal(control("zeros", 2, 3, 4).matrices, torch.zeros(2, 3, 4, 4))
    toeplitz = control("toeplitz", 2, 3, 4).matrices[0, 0]
    assert toeplitz[1].tolist() == pytest.approx([1 / 2, 1, 1 / 2, 1 / 3])
    assert picture(kinds.first(4)) == ["x..."] * 4
    assert picture(kinds.previous(4)) == ["....", "x...", ".x..", "..x."]
    assert picture(kinds.next_slot(4)) == [".x..", "..x.", "...x", "...."]
    assert picture(kinds.local(4, window=1)) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert picture(kinds.local(4)) == ["xxx.", "xxxx", "xxxx", ".xxx"]


def test_heads_have_rows_of_the_wythoff_array_and_share_no_distance() -> None:
    """Its first rows: 1 2 3 5 8 13, 4 7 11 18, 6 10 16 26, 9 15 24 39 (OEIS A035513)."""
    found = kinds.fibonacci(20, 4)
    assert found[:, 0].all(), "[CLS] attends to all"
    assert found[:, :, 0].all(), "all attend to [CLS]"
    distances = [{abs(i - j) for i, j in np.argwhere(one) if i and j} for one in found]
    assert distances == [{1, 2, 3, 5, 8, 13}, {4, 7, 11, 18}, {6, 10, 16}, {9, 15}]
    assert (found == found.transpose(0, 2, 1)).all()


def test_what_was_saved_is_loaded_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    saved = ConstantMatrices(torch.rand(6, 12, 8, 8), torch.rand(8, 8) > 0.5, "average")
    saved.save(tmp_path / "c", reference, {})
    loaded = ConstantMatrices.load(tmp_path / "c", encoder=reference, slots=8)
    assert torch.equal(loaded.matrices, saved.matrices)
    assert torch.equal(loaded.seen, saved.seen)
    assert loaded.kind == "average"
    with pytest.raises(ArtifactError, match="was made for S 8, this study uses 16"):
        ConstantMatrices.load(tmp_path / "c", encoder=reference, slots=16)
    other = replace(reference, name="other", digest="0" * 64)
    with pytest.raises(ArtifactError, match=r"was made for encoder \w+, this study uses 0000"):
        ConstantMatrices.load(tmp_path / "c", encoder=other)
    path = verified(tmp_path / "c") / FILE
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ArtifactError, match="is damaged"):
        ConstantMatrices.load(tmp_path / "c")


RANDOM = np.random.default_rng(0)


def average(special: tuple[int, ...]) -> Averages:
    counts = RANDOM.integers(0, 4, (8, 8)).astype(float)
    return Averages(RANDOM.random((2, 3, 8, 8)), counts, special)


def test_an_outer_product_has_rank_one_and_what_is_added_to_it_is_kept_apart() -> None:
    column, row = np.array([1.0, 2, 3, 4]), np.array([0.1, 0.2, 0.3, 0.4])
    exact = np.outer(column, row)[None, None]
    given = Averages(exact, np.ones((4, 4)), (0, 3))
    assert low_rank(given, 1) == pytest.approx(exact, abs=1e-12)
    peaked = exact.copy()
    peaked[0, 0, 0, 1] += 5
    given = Averages(peaked, np.ones((4, 4)), (0, 3))
    assert np.abs(low_rank(given, 1) - peaked).max() > 0.1, "negative control"
    assert low_rank(given, 2) == pytest.approx(peaked, abs=1e-12)
    assert low_rank(given, 1, largest=1)[0, 0, 0, 1] == peaked[0, 0, 0, 1]
    assert low_rank(given, 1, largest=16) == pytest.approx(peaked, abs=0)


@pytest.mark.parametrize("special", [(0, 7), (0, 4, 7)])
def test_relative_is_the_mean_over_all_pairs_at_a_distance(special: tuple[int, ...]) -> None:
    given = average(special)
    found, middle = relative(given), special[1] if len(special) > 2 else 8

    def place(i: int, j: int) -> tuple[Any, ...]:
        if i in special or j in special:
            return tuple(one if one in special else "text" for one in (i, j))
        return i - j, (i > middle, j > middle) if i - j and (i > middle) != (j > middle) else "one"

    for i, j in np.ndindex(8, 8):
        pairs = [at for at in np.ndindex(8, 8) if place(*at) == place(i, j)]
        seen = sum(given.counts[at] for at in pairs)
        total = sum(given.counts[at] * given.matrices[:, :, *at] for at in pairs)
        assert found[:, :, i, j] == pytest.approx(total / max(seen, 1)), (i, j)
    assert np.abs(found - given.matrices).max() > 0.1, "negative control"
