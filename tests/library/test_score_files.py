"""Head scores in the formats of other projects, read as those projects read them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
import pytest

import papa
from papa.errors import SpecError

SCORES = np.array([[0.9, 0.1, 0.2, 0.3], [0.8, 0.7, -0.5, 0.4]])
LAYERS = 3
HEADS = 4
DRAWN = np.random.default_rng(0).random((LAYERS, HEADS))


def in_pairs(scores: Sequence[Sequence[float]] | np.ndarray) -> pandas.DataFrame:
    """A frame of scores whose heads share keys and values in pairs."""
    layers, heads = np.indices(np.shape(scores)).reshape(2, -1)
    columns = {"layer": layers, "head": heads, "kv_group": heads // 2, "score": np.ravel(scores)}
    return pandas.DataFrame(columns)


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
def test_groups_of_unequal_neighbours_are_refused(tmp_path: Path, groups: list[int]) -> None:
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


def test_files_as_others_write_them(tmp_path: Path) -> None:
    """Duo attention saves tables with tabs, retrieval heads a list of scores a head."""
    file = tmp_path / "full_attention_heads.tsv"
    np.savetxt(file, DRAWN, delimiter="\t")
    scores = papa.load_scores(file)
    assert scores.columns.tolist() == ["layer", "head", "method", "score", "low", "high"]
    assert np.array_equal(scores["score"], DRAWN.ravel())
    assert set(scores["method"]) == {file.name}
    assert papa.constant_heads(scores, keep=1 - 1 / 12) == (divmod(int(DRAWN.argmin()), HEADS),)
    lists = {
        f"{layer}-{head}": [score + sample for sample in range(5)]
        for (layer, head), score in np.ndenumerate(DRAWN)
    }
    (tmp_path / "llama.json").write_text(json.dumps(lists))
    assert np.allclose(papa.load_scores(tmp_path / "llama.json")["score"], DRAWN.ravel() + 2)


@pytest.mark.parametrize("form", ["npy", "csv", "json", "txt"])
def test_head_scores_are_read_from_every_form(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"scores.{form}"
    if form == "npy":
        np.save(file, DRAWN.astype(np.float32))
    elif form == "json":
        file.write_text(json.dumps(DRAWN.tolist()))
    else:
        np.savetxt(file, DRAWN, delimiter="," if form == "csv" else " ")
    assert papa.load_scores(file)["score"].to_numpy() == pytest.approx(DRAWN.ravel())


def test_an_array_of_another_shape_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", DRAWN[0])
    with pytest.raises(papa.PapaError, match=re.escape(str(tmp_path / "scores.npy"))):
        papa.load_scores(tmp_path / "scores.npy")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\t2\n3", "from 2 to 1"),
        ("1\tnan", r"\(0, 1\)"),
        ("layer\thead\n0\t1", "'layer'"),
        ("layer,head,score\n0,0,1", "'layer'"),
        ('{"0": {"0": 1}}', ""),
        ("[[1, 2], [3]]", ""),
        ("", ""),
        ("{0: 1", ""),
        ('{"0-0": [1], "0-1": [1], "1-1": [1]}', r"\(1, 0\)"),
    ],
)
def test_a_file_without_all_scores_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "scores"
    path.write_text(text)
    with pytest.raises(papa.PapaError, match=f"{re.escape(str(path))}.*{expected}"):
        papa.load_scores(path)
