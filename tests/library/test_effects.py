"""The effect of one head alone: the numbers of a plain loop, with intervals or by example, and what
is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

import papa
from papa.errors import DataError, EncoderError, NumbersError, SpecError
from tests.library.test_fidelity import HEADS, LAYERS, TEXTS, bert, gpt, texts

EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


@pytest.mark.parametrize(
    ("model", "measure", "of"),
    [
        (bert(BertModel), "cosine", lambda one: 1 - one["cosine"].mean),
        (
            bert(BertForSequenceClassification, num_labels=3),
            "divergence",
            lambda one: one["divergence"].mean,
        ),
        (bert(BertForMaskedLM), "agreement", lambda one: 1 - one["agreement"].mean),
        (gpt(), "loss", lambda one: one["loss_difference"].mean),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("by", ["zeros", "mean"])
def test_each_head_is_measured_as_if_it_were_replaced_by_hand(
    model: Any, measure: str, of: Any, by: str
) -> None:
    found = papa.head_effects(model, texts(), by, progress=False)
    assert found[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert set(found["measure"]) == {measure}
    expected = [of(papa.fidelity(model, [head], by, data=texts()).measures) for head in EVERY]
    np.testing.assert_allclose(found["effect"], expected, atol=1e-6)
    assert (found["low"] < found["effect"]).all()
    assert (found["effect"] < found["high"]).all()
    assert found["effect"].abs().max() > 0.001, "negative control"
    examples = papa.head_effects(
        model, texts(), by, heads=EVERY[2:4], per_example=True, progress=False
    )
    assert examples.columns.tolist() == ["layer", "head", "measure", "example", "effect"]
    assert len(examples) == 2 * TEXTS
    if measure != "loss":  # A mean over tokens weighs texts by their length.
        tokens = [
            int(mask.sum()) if measure == "agreement" else 1
            for b in texts()
            for mask in b["attention_mask"]
        ]
        means = [np.average(own["effect"], weights=tokens) for _, own in examples.groupby("head")]
        np.testing.assert_allclose(means, found["effect"][2:4], atol=1e-6)


def test_tokens_that_no_head_changes_bound_the_share_that_one_may() -> None:
    """Of n texts that show nothing up to 3.84 in n may: the scale of a share is known."""
    model = bert(BertForMaskedLM)
    torch.nn.init.zeros_(model.bert.encoder.layer[0].attention.output.dense.weight)
    found = papa.head_effects(model, texts(), heads=EVERY[:HEADS], progress=False)
    assert found["effect"].tolist() == [0] * HEADS == found["low"].tolist()
    assert found["high"].tolist() == pytest.approx([3.841 / TEXTS] * HEADS, abs=1e-4)


def test_a_substitute_is_made_once_and_the_model_left_as_it_was() -> None:
    model, passes = bert(BertModel), list[int]()
    before = model(**texts()[0]).last_hidden_state
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    papa.head_effects(model, iter(texts()), "mean", made_from=iter(texts()), progress=False)
    handle.remove()
    assert len(passes) == len(texts()) * (1 + 1 + len(EVERY)), "the original, the means, each head"
    assert model(**texts()[0]).last_hidden_state.equal(before)


def test_what_has_no_effect_is_one_sentence() -> None:
    with pytest.raises(EncoderError, match="in train mode"):
        papa.head_effects(bert(BertModel).train(), texts())
    with pytest.raises(DataError, match="holds no batch"):
        papa.head_effects(bert(BertModel), [])
    called = "data holds a str, expected what the model is called with"
    for data, made_from in ((iter(["a text"]), None), (texts(), iter(["a text"]))):
        with pytest.raises(DataError, match=called):
            papa.head_effects(bert(BertModel), data, "mean", made_from=made_from)
    with pytest.raises(SpecError, match=r"there is no head \(9, 0\)"):
        papa.head_effects(bert(BertModel), texts(), heads=[(9, 0)], progress=False)
    with pytest.raises(SpecError, match="there is no substitute 'zeroes'"):
        papa.head_effects(bert(BertModel), texts(), "zeroes")
    broken = bert(BertForSequenceClassification, num_labels=3)
    torch.nn.init.constant_(broken.classifier.weight, torch.nan)
    with pytest.raises(NumbersError, match=r"answers with head \(0, 0\) replaced holds NaN"):
        papa.head_effects(broken, texts(), progress=False)
