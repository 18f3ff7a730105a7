"""A model's own answers with heads replaced: which measures, of which tokens, and what
is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

import papa
from papa.scores.fidelity import embedding_fidelity

LAYERS, HEADS = 2, 4
EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
TEXTS = 24


def bert(kind: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 64,
    }
    return kind(BertConfig(vocab_size=99, initializer_range=0.35, **sizes, **more)).eval()


def gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 16}
    return GPT2LMHeadModel(
        GPT2Config(**sizes, initializer_range=0.35, bos_token_id=0, eos_token_id=0)
    ).eval()


def texts(left: bool = False) -> list[dict[str, torch.Tensor]]:
    """Texts of 4 to 9 tokens in two batches, padded on one side."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 99, (TEXTS, 9), generator=draw)
    mask = torch.arange(9)[None] < torch.randint(4, 10, (TEXTS, 1), generator=draw)
    if left:
        ids, mask = ids.flip(1), mask.flip(1)
    halves = zip((ids * mask).split(TEXTS // 2), mask.long().split(TEXTS // 2), strict=True)
    return [{"input_ids": own, "attention_mask": real} for own, real in halves]


def alone(data: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """Each text by itself, without padding."""
    rows = [
        (ids, mask.bool())
        for one in data
        for ids, mask in zip(one["input_ids"], one["attention_mask"], strict=True)
    ]
    return [{"input_ids": ids[mask][None]} for ids, mask in rows]


@pytest.mark.parametrize(
    ("model", "measures"),
    [
        (bert(BertModel), {"cosine", "similarities", "nearest_1", "nearest_10"}),
        (bert(BertForSequenceClassification, num_labels=3), {"agreement", "divergence"}),
        (bert(BertForTokenClassification, num_labels=5), {"agreement", "divergence"}),
        (bert(BertForMaskedLM), {"agreement", "divergence"}),
        (gpt(), {"agreement", "divergence", "loss_before", "loss_after", "loss_difference"}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_each_kind_of_model_by_its_own_measures(model: Any, measures: set[str]) -> None:
    none, every = (papa.fidelity(model, heads, data=texts()) for heads in ([], EVERY_HEAD))
    assert set(none.index) == set(every.index) == measures
    assert none.attrs["texts"] == TEXTS
    for name in measures & {"cosine", "similarities", "nearest_1", "nearest_10", "agreement"}:
        assert none["value"][name] == pytest.approx(1, abs=1e-5), name
        assert every["high"][name] < 1, name
    for name in measures & {"divergence", "loss_difference"}:
        assert none["value"][name] == pytest.approx(0, abs=1e-4), name
        assert abs(every["value"][name]) > 0.01, name
    unpadded = papa.fidelity(model, EVERY_HEAD, data=alone(texts()))
    assert unpadded["value"].to_dict() == pytest.approx(every["value"].to_dict(), abs=1e-4)


@torch.no_grad()
def test_the_numbers_are_those_of_a_plain_loop() -> None:
    encoder, classifier = bert(BertModel), bert(BertForSequenceClassification, num_labels=3)
    with papa.ablated(encoder, EVERY_HEAD), papa.ablated(classifier, EVERY_HEAD):
        after = [encoder(**one).last_hidden_state[0].mean(0).numpy() for one in alone(texts())]
        logits = [classifier(**one).logits for one in texts()]
    before = [encoder(**one).last_hidden_state[0].mean(0).numpy() for one in alone(texts())]
    found, expected = (
        papa.fidelity(encoder, EVERY_HEAD, data=texts()),
        embedding_fidelity(*map(np.stack, (before, after))),
    )
    for name, one in expected.items():
        assert found["value"][name] == pytest.approx(one.mean, abs=1e-4), name
    original = torch.cat([classifier(**one).logits for one in texts()])
    decoder, by_token = gpt(), lambda: [decoder(**one).logits[0, :-1] for one in alone(texts())]
    own = torch.cat(by_token())
    with papa.ablated(decoder, EVERY_HEAD):
        changed = torch.cat(by_token())
    for model, before, after in (
        (classifier, original, torch.cat(logits)),
        (decoder, own, changed),
    ):
        expected_divergence = entropy(before.softmax(1), after.softmax(1), axis=1).mean()
        found = papa.fidelity(model, EVERY_HEAD, data=texts())["value"]["divergence"]
        assert found == pytest.approx(expected_divergence, abs=1e-4)


@torch.no_grad()
def test_losses_are_the_models_own_wherever_the_padding_is() -> None:
    model, masked, data = gpt(), bert(BertForMaskedLM), texts()
    tokens = np.array([one["input_ids"].shape[1] - 1 for one in alone(data)])
    for sided in (data, texts(left=True)):
        own = [float(model(**one, labels=one["input_ids"]).loss) for one in alone(sided)]
        positions = [
            {**one, "position_ids": (one["attention_mask"].cumsum(1) - 1).clamp(0)} for one in sided
        ]
        found = papa.fidelity(model, EVERY_HEAD, data=positions)["value"]
        assert found["loss_before"] == pytest.approx(np.average(own, weights=tokens), abs=1e-4)
        assert found["loss_difference"] == pytest.approx(found["loss_after"] - found["loss_before"])
    labels = torch.where(torch.arange(9)[None] % 3 == 1, data[0]["input_ids"], -100)
    with_labels = {**data[0], "labels": torch.where(data[0]["attention_mask"].bool(), labels, -100)}
    found = papa.fidelity(masked, EVERY_HEAD, data=[with_labels])["value"]
    assert found["loss_before"] == pytest.approx(float(masked(**with_labels).loss), abs=1e-4)
