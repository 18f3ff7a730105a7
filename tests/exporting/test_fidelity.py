"""What an exported encoder's embeddings keep of the original's: measured as users pool them, and
said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

import papa
from papa.exporting.card import report_rows
from papa.exporting.measuring import measure_fidelity, states_of
from papa.scores.fidelity import embedding_fidelity
from tests.exporting.conftest import Case, document_with


@torch.inference_mode()
def pooled(model: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    """One text at a time, so that padding plays no part."""
    states = [
        model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts
    ]
    return torch.stack(states).numpy()


@pytest.mark.parametrize("family", ["minilm", "roberta"])
def test_the_embeddings_compared_are_those_that_users_get(
    make_case: Callable[..., Case], family: str, tmp_path: Path
) -> None:
    case = make_case(family, "text")
    original = AutoModel.from_pretrained(case.reference.folder).eval()
    found, heads = {}, {"some": case.some_heads()[:3], "most": case.some_heads()}
    for name, own in heads.items():
        exported = case.exported(tmp_path / name, own)
        found[name] = measure_fidelity(
            states_of(original), states_of(exported), case.split, case.layout
        )
    assert found["most"] is not None
    assert found["some"] is not None
    before, after = (
        pooled(model, exported.tokenizer, case.texts[0]) for model in (original, exported)
    )
    expected = embedding_fidelity(before, after)
    assert found["most"].keys() == expected.keys() | {"texts"}
    for name in expected:
        assert found["most"][name]["mean"] == pytest.approx(expected[name].mean, abs=1e-4), name
    assert found["most"]["texts"] == len(case.texts[0])
    assert found["most"]["cosine"]["mean"] < found["some"]["cosine"]["mean"] - 1e-3


def test_pairs_have_no_embeddings_of_use(make_case: Callable[..., Case], tmp_path: Path) -> None:
    case = make_case("electra", "pair")
    case.export(tmp_path / "pair")
    original = AutoModel.from_pretrained(case.reference.folder).eval()
    exported = papa.load_exported(tmp_path / "pair")
    states = states_of(original), states_of(exported)
    assert measure_fidelity(*states, case.split, case.layout) is None


def rows(kept: float, half: float) -> dict[str, str]:
    one = {"mean": kept, "low": kept - half, "high": kept + half, "seeds": 1}
    names = ("cosine", "similarities", "nearest_1", "nearest_10")
    return dict(report_rows(document_with(fidelity={"texts": 300, **dict.fromkeys(names, one)})))


def test_a_warning_comes_first_where_surely_too_few_neighbours_are_kept() -> None:
    found = rows(0.54, 0.04)
    assert next(iter(found)) == "Warning"
    assert (
        "54.0 % of the original's ten nearest neighbours, surely less than 80 %" in found["Warning"]
    )
    assert "on 300 validation texts" in found["Embeddings"]
    assert "ten nearest kept 0.540 ± 0.040" in found["Embeddings"]
    assert "Warning" not in rows(0.78, 0.04)
