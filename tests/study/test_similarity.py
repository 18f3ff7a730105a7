"""Pairs with labels: Spearman's correlation of the cosine of two embeddings with gold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

import papa
from papa.attention.constants import ConstantMatrices
from tests.finished import Scored, described, score_study

pytestmark = pytest.mark.unchecked
SLOTS = 64
TASK: dict[str, Any] = {
    "kind": "similarity",
    "head": "own",
    "columns": {"text": "premise", "text_pair": "hypothesis", "label": "follows"},
    "metric": "cosine_spearman",
    "slots": SLOTS,
}
DESIGN: dict[str, Any] = {
    "orders": ["lambda", "first_to_last"],
    "seeds": [0, 1],
    "ranking": {"rows": 8, "epochs": 1, "seeds": [0]},
}


@pytest.fixture(scope="module")
def pairs(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of RTE, alike where the second follows from the first."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 16), ("validation", 40)):
        frame = pandas.read_json(shared / "data" / "rte" / f"{split}.jsonl", lines=True).head(count)
        rows = frame.rename(columns={"sentence1": "premise", "sentence2": "hypothesis"})
        rows = rows.assign(follows=1.0 - frame["label"]).drop(columns="label")
        rows.to_json(folder / f"{split}.jsonl", orient="records", lines=True)
    return folder


def frame(pairs: Path, split: str) -> pandas.DataFrame:
    return pandas.read_json(pairs / f"{split}.jsonl", lines=True)


@pytest.fixture(scope="module")
def scored(shallow: str, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    to = tmp_path_factory.mktemp("s") / "store"
    return score_study(described(shallow, TASK, **DESIGN), pairs, to)


@torch.no_grad()
def test_the_score_is_that_of_the_stock_model(scored: Scored, shallow: str, pairs: Path) -> None:
    study = scored.table
    stock = AutoModel.from_pretrained(shallow).eval()
    tokenizer = AutoTokenizer.from_pretrained(shallow)

    def embedded(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(
            texts, padding=True, truncation=True, max_length=SLOTS, return_tensors="pt"
        )
        real = inputs["attention_mask"][:, :, None]
        return (stock(**inputs).last_hidden_state * real).sum(1) / real.sum(1)

    rows = frame(pairs, "validation")
    first, second = (embedded(rows[name].tolist()) for name in ("premise", "hypothesis"))
    cosines = torch.nn.functional.cosine_similarity(first, second).numpy()
    expected = spearmanr(cosines, rows["follows"]).statistic
    own = study[study["fraction"] == 1]["score"]
    assert own.tolist() == pytest.approx([expected] * len(own), abs=1e-3)
    apart = spearmanr(cosines, np.roll(rows["follows"], 1)).statistic
    assert abs(apart - expected) > 0.05, "negative control: labels of other pairs"
    assert study["score"].nunique() > 3, "negative control: cells differ"


def test_the_average_is_that_of_both_texts_alone(scored: Scored, shallow: str, pairs: Path) -> None:
    """Not of the pair in one layout: the same texts, a row each, have the same average."""
    (step,) = (one for one in scored.steps.steps if one.stage == "average")
    ours = ConstantMatrices.load(
        Path(step.folder(scored.store)), encoder=step["encoder"], slots=SLOTS
    )
    encoder = papa.load_encoder(shallow, slots=SLOTS, device="cpu")
    rows = frame(pairs, "train")
    texts = [
        text for pair in zip(rows["premise"], rows["hypothesis"], strict=True) for text in pair
    ]
    alone = papa.average(encoder, texts, progress=False)
    torch.testing.assert_close(ours.matrices, alone.matrices, atol=1e-6, rtol=0)
    together = papa.average(encoder, rows, text="premise", text_pair="hypothesis", progress=False)
    assert (ours.matrices - together.matrices).abs().max() > 0.01, "negative control"
