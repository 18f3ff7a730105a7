"""Others' head scores: files as their code writes them, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import papa

LAYERS, HEADS = 3, 4
SCORES = np.random.default_rng(0).random((LAYERS, HEADS))


def test_files_as_others_write_them(tmp_path: Path) -> None:
    """Duo attention's training ends in ``numpy.savetxt`` with tabs; retrieval heads' detection
    appends a score a sample under ``"layer-head"`` and dumps the dictionary.
    """
    file = tmp_path / "full_attention_heads.tsv"
    np.savetxt(file, SCORES, delimiter="\t")
    found = papa.load_scores(file)
    assert found.columns.tolist() == ["layer", "head", "method", "score", "low", "high"]
    assert np.array_equal(found["score"], SCORES.ravel())
    assert set(found["method"]) == {file.name}
    assert papa.constant_heads(found, 1 - 1 / 12) == (divmod(int(SCORES.argmin()), HEADS),)
    lists = {
        f"{layer}-{head}": [score + sample for sample in range(5)]
        for (layer, head), score in np.ndenumerate(SCORES)
    }
    (tmp_path / "llama.json").write_text(json.dumps(lists))
    assert np.allclose(papa.load_scores(tmp_path / "llama.json")["score"], SCORES.ravel() + 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t2\n3", r"\(.* changed from 2 to 1 .*\): expected a line of numbers for each layer"),
        ("1\tnan", r"\(it has no score of head \(0, 1\)\)"),
        ("layer\thead\n0\t1", "'layer'"),
        ("", "index out of range"),
        ("{0: 1", "Expecting property name"),
        ("{}", "expected a line"),
        ('{"0": [1, 2]}', "expected a line"),
        ('{"0-0": [1], "0-1": [1], "1-1": [1]}', r"it has no score of head \(1, 0\)"),
        ('{"0-0": ["x"]}', "expected a line"),
    ],
)
def test_what_is_no_file_of_scores(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "scores").write_text(text)
    with pytest.raises(papa.PapaError, match=f"cannot be read as head scores .*{message}"):
        papa.load_scores(tmp_path / "scores")
    with pytest.raises(papa.PapaError, match="cannot be read as head scores"):
        papa.load_scores(tmp_path)
