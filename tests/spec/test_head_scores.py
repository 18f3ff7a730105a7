"""Others' head scores: files as their code writes them, what ours writes, and files that are
neither.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import papa
from papa.spec.head_scores import scores_as_tsv

LAYERS, HEADS = 3, 4
SCORES = np.random.default_rng(0).random((LAYERS, HEADS))


def test_duo_attention_writes_a_line_for_each_layer(tmp_path: Path) -> None:
    """Their training ends in ``numpy.savetxt`` with tabs; their evaluation reads it with
    ``numpy.loadtxt``.
    """
    file = tmp_path / "full_attention_heads.tsv"
    np.savetxt(file, SCORES, delimiter="\t")
    found = papa.load_scores(file)
    assert found.columns.tolist() == ["layer", "head", "method", "score", "low", "high"]
    assert np.array_equal(found["score"], SCORES.ravel())
    assert set(found["method"]) == {file.name}
    assert papa.constant_heads(papa.load_scores(file), 1 - 1 / 12) == (
        divmod(int(SCORES.argmin()), HEADS),
    )
    file.write_text(scores_as_tsv(SCORES))
    assert np.array_equal(np.loadtxt(file, delimiter="\t"), SCORES), "they read ours"


def test_retrieval_head_writes_lists_of_scores(tmp_path: Path) -> None:
    """Their detection appends a score a sample under ``"layer-head"`` and dumps the dictionary."""
    counter: dict[str, list[float]] = defaultdict(list)
    for sample in range(5):
        for layer in range(LAYERS):
            for head in range(HEADS):
                counter[f"{layer}-{head}"].append(SCORES[layer, head] + sample)
    file = tmp_path / "llama.json"
    file.write_text(json.dumps(counter))
    assert np.allclose(papa.load_scores(file)["score"], SCORES.ravel() + 2)


def test_lists_of_heads_go_first(tmp_path: Path) -> None:
    """The dictionary that ``prune_heads`` took, as a model's configuration keeps it."""
    file = tmp_path / "pruned.json"
    file.write_text(json.dumps({0: [1, 2], 2: [3]}))
    scores = papa.load_scores(file, layers=LAYERS, heads=HEADS)
    assert papa.constant_heads(scores, 1 - 3 / 12) == ((0, 1), (0, 2), (2, 3))


def test_what_is_written_is_read_to_the_last_digit(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(scores_as_tsv(SCORES / 3))
    found = papa.load_scores(tmp_path / "own.tsv", layers=LAYERS, heads=HEADS)
    assert np.array_equal(found["score"], SCORES.ravel() / 3)


WRONG: dict[str, tuple[str, str]] = {
    "another shape": ("1\t2\n3\t4", "holds scores of 2 layers of 2 heads, expected 3 layers of 4"),
    "mixed layers": ("1\t2\n3", "line 2 holds 1 numbers and the first 2: give one for every head"),
    "an empty line": ("1\t2\n\n3\t4", "line 2 holds 0 numbers"),
    "nan": ("1\tnan", r"the score of head \(0, 1\) is nan"),
    "words": ("layer\thead\n0\t1", r"line 1 holds 'layer\\thead': expected a line of numbers"),
    "nothing": ("", "is empty: expected"),
    "no JSON": ("{0: 1", "cannot be read as head scores"),
    "no key": ("{}", "holds nothing: expected"),
    "mixed keys": ('{"0-0": [1], "1": [2]}', "holds the key '1': expected"),
    "a missing head": ('{"0-0": [1], "0-1": [1], "1-1": [1]}', r"has no score of head \(0, 2\)"),
    "no score": ('{"0-0": []}', r"head \(0, 0\) has \[\]: give its scores"),
    "an odd score": ('{"0-0": ["x"]}', r"head \(0, 0\) has \['x'\]"),
    "JSON's nan": (
        json.dumps({f"{a}-{b}": [float("nan")] for a in range(3) for b in range(4)}),
        "is nan",
    ),
    "another head": ('{"0": [7]}', r"layer 0 lists 7, expected heads from \(0, 0\) to \(2, 3\)"),
    "another layer": ('{"5": [1]}', "layer 5 lists 1"),
    "scores by layer": ('{"0": [0.5, 0.1]}', r"layer 0 lists 0\.5, expected heads"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_what_is_no_file_of_scores(tmp_path: Path, case: str) -> None:
    text, sentence = WRONG[case]
    file = tmp_path / "scores"
    file.write_text(text)
    with pytest.raises(papa.PapaError, match=sentence) as refused:
        papa.load_scores(file, layers=LAYERS, heads=HEADS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["nowhere.tsv", "."])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(papa.PapaError, match="cannot be read as head scores"):
        papa.load_scores(tmp_path / name)


def test_lists_of_heads_need_a_shape(tmp_path: Path) -> None:
    (tmp_path / "pruned.json").write_text('{"0": [1]}')
    with pytest.raises(papa.PapaError, match="give layers= and heads="):
        papa.load_scores(tmp_path / "pruned.json")
