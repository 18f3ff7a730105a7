"""Head scores in the formats of other projects, read as those projects read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
import pytest

import papa
from papa.errors import SpecError

SCORES = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, -0.5, 0.4]])


def in_pairs(scores: Sequence[Sequence[float]] | np.ndarray) -> pandas.DataFrame:
    """A frame of scores whose heads share keys and values in pairs."""
    layers, heads = np.indices(np.shape(scores)).reshape(2, -1)
    return pandas.DataFrame(
        {"layer": layers, "head": heads, "kv_group": heads // 2, "score": np.ravel(scores)}
    )


def duo_attention_pattern(folder: Path) -> np.ndarray:
    """As DuoAttention and kvpress load a pattern."""
    pattern = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t")
    settings = json.loads((folder / "config.json").read_text())
    assert (settings["sink_size"], settings["recent_size"]) == (4, 16)
    return np.clip(pattern, 0, 1)


def kept_by_quantile(pattern: np.ndarray, sparsity: float) -> np.ndarray:
    """Which groups keep their whole cache: those above a quantile of the pattern."""
    return pattern > np.quantile(pattern, sparsity)


def test_a_duo_attention_pattern_has_a_column_for_each_group(tmp_path: Path) -> None:
    path = tmp_path / "pattern"
    papa.save_scores(in_pairs(SCORES), path, format="duo_attention", sink_size=4, recent_size=16)
    pattern = duo_attention_pattern(tmp_path / "pattern")
    # Groups' highest scores are .9, .3 and .8, .4.
    np.testing.assert_allclose(pattern, [[1, 0], [2 / 3, 1 / 3]], atol=1e-6)
    assert kept_by_quantile(pattern, 0.5).tolist() == [[True, False], [True, False]]


def test_a_group_is_kept_if_one_of_its_heads_is(tmp_path: Path) -> None:
    scores = in_pairs([[0.9, -9.0, 0.5, 0.5]])
    papa.save_scores(scores, tmp_path, format="duo_attention", sink_size=4, recent_size=16)
    assert kept_by_quantile(duo_attention_pattern(tmp_path), 0.5).tolist() == [True, False]


def test_retrieval_scores_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    papa.save_scores(SCORES, path, format="retrieval_head")
    with path.open() as file:
        head_list = json.loads(file.readline())
    means = [
        ([int(number) for number in name.split("-")], np.mean(values))
        for name, values in head_list.items()
    ]
    best = [head for head, _ in sorted(means, key=lambda entry: entry[1], reverse=True)]
    assert best[:3] == [[0, 0], [1, 0], [1, 1]]


def test_saved_scores_load_again(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    papa.save_scores(SCORES, path, format="retrieval_head")
    loaded = papa.load_scores(path)["score"].to_numpy().reshape(SCORES.shape)
    np.testing.assert_allclose(loaded, SCORES)


@pytest.mark.parametrize("groups", [[0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 2, 2]])
def test_groups_that_are_no_neighbours_of_one_size_are_refused(
    tmp_path: Path, groups: list[int]
) -> None:
    scores = in_pairs(SCORES).assign(kv_group=groups * 2)
    with pytest.raises(SpecError) as error:
        papa.save_scores(scores, tmp_path, format="duo_attention")
    assert "kv_group" in str(error.value)


@pytest.mark.parametrize(
    ("keep", "count", "expected"),
    [
        (0.75, None, [(0, 2), (0, 3)]),
        (0.5, None, [(0, 2), (0, 3), (1, 2), (1, 3)]),
        # Three heads may become constant: one group does.
        (None, 3, [(0, 2), (0, 3)]),
    ],
)
def test_whole_groups_become_constant(
    keep: float | None, count: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(papa.constant_heads(in_pairs(SCORES), keep=keep, count=count)) == expected
    assert papa.constant_heads(SCORES, keep=0.75) == ((1, 2), (0, 1)), "negative control"
