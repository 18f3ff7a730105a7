"""A model's own answers with heads replaced: which measures, of which tokens, and what
is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy

import papa
from papa.scores.answers import embedding_fidelity
from tests.make import GPT2, RANGE, SIZES, inputs_of, made, random_model

LAYERS, HEADS = 2, 4
EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
TEXTS = 24


def bert(kind: str = "Model", **more: Any) -> Any:
    torch.manual_seed(0)
    sizes = {**SIZES, "num_hidden_layers": LAYERS, "vocab_size": 99}
    return made("Bert", kind, **sizes, **more)().eval()


def gpt() -> Any:
    torch.manual_seed(0)
    sizes = {**GPT2, "n_layer": LAYERS, "n_positions": 16, "vocab_size": 99, "bos_token_id": 0}
    return made("GPT2", "LMHeadModel", **sizes, eos_token_id=0, initializer_range=RANGE)().eval()


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
    return [
        {"input_ids": ids[mask.bool()][None]}
        for one in data
        for ids, mask in zip(one["input_ids"], one["attention_mask"], strict=True)
    ]


@pytest.mark.parametrize(
    ("model", "measures"),
    [
        (bert(), {"cosine", "similarities", "nearest_1", "nearest_10"}),
        (bert("ForSequenceClassification", num_labels=3), {"agreement", "divergence"}),
        (bert("ForTokenClassification", num_labels=5), {"agreement", "divergence"}),
        (bert("ForMaskedLM"), {"agreement", "divergence"}),
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
    def embedded() -> np.ndarray:
        states = [encoder(**one).last_hidden_state[0] for one in alone(texts())]
        return np.stack([one.mean(0).numpy() for one in states])

    def logits(model: Any) -> torch.Tensor:
        if model is decoder:
            return torch.cat([model(**one).logits[0, :-1] for one in alone(texts())])
        return torch.cat([model(**one).logits for one in texts()])

    encoder, decoder, classifier = bert(), gpt(), bert("ForSequenceClassification", num_labels=3)
    with papa.ablated(encoder, EVERY_HEAD):
        after = embedded()
    found = papa.fidelity(encoder, EVERY_HEAD, data=texts())["value"]
    for name, one in embedding_fidelity(embedded(), after).items():
        assert found[name] == pytest.approx(one.mean, abs=1e-4), name
    for model in (classifier, decoder):
        with papa.ablated(model, EVERY_HEAD):
            changed = logits(model).softmax(1)
        expected = entropy(logits(model).softmax(1), changed, axis=1).mean()
        found = papa.fidelity(model, EVERY_HEAD, data=texts())["value"]
        assert found["divergence"] == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
def test_losses_are_the_models_own_wherever_the_padding_is() -> None:
    model, masked, data = gpt(), bert("ForMaskedLM"), texts()
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


@pytest.mark.unchecked
def test_sound_whose_mask_is_over_samples() -> None:
    model, seeds = random_model("wav2vec2"), range(10)
    mask = torch.ones(3, 200, dtype=torch.long)
    mask[1, 120:] = 0
    whole = [inputs_of("wav2vec2", seed=seed, batch=3)["input_values"] for seed in seeds]
    found, other = (
        papa.fidelity(
            model, [(0, 0), (1, 1)], "mean", data=[{"input_values": one, **more} for one in whole]
        )
        for more in ({"attention_mask": mask}, {})
    )
    assert found.attrs["texts"] == 30
    assert (other["value"].to_numpy() != found["value"].to_numpy()).all()
