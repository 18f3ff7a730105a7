"""Scores of heads in files, as other projects write them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import papa

LAYERS = 3
HEADS = 4
SCORES = np.random.default_rng(0).random((LAYERS, HEADS))


def test_files_as_others_write_them(tmp_path: Path) -> None:
    """Duo attention's training ends in ``numpy.savetxt`` with tabs; retrieval heads' detection
    appends a score a sample under ``"layer-head"`` and dumps the dictionary.
    """
    file = tmp_path / "full_attention_heads.tsv"
    np.savetxt(file, SCORES, delimiter="\t")
    scores = papa.load_scores(file)
    assert scores.columns.tolist() == ["layer", "head", "method", "score", "low", "high"]
    assert np.array_equal(scores["score"], SCORES.ravel())
    assert set(scores["method"]) == {file.name}
    assert papa.constant_heads(scores, keep=1 - 1 / 12) == (divmod(int(SCORES.argmin()), HEADS),)
    lists = {
        f"{layer}-{head}": [score + sample for sample in range(5)]
        for (layer, head), score in np.ndenumerate(SCORES)
    }
    (tmp_path / "llama.json").write_text(json.dumps(lists))
    assert np.allclose(papa.load_scores(tmp_path / "llama.json")["score"], SCORES.ravel() + 2)


@pytest.mark.parametrize("form", ["npy", "csv", "json", "txt"])
def test_head_scores_are_read_from_every_form(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"scores.{form}"
    if form == "npy":
        np.save(file, SCORES.astype(np.float32))
    elif form == "json":
        file.write_text(json.dumps(SCORES.tolist()))
    else:
        np.savetxt(file, SCORES, delimiter="," if form == "csv" else " ")
    assert papa.load_scores(file)["score"].to_numpy() == pytest.approx(SCORES.ravel())


def test_an_array_of_another_shape_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", SCORES[0])
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
