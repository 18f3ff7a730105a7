"""Lists, pairs, data sets and data frames are the same text; a model that is held is the same
encoder.
"""

from __future__ import annotations

from typing import Any

import datasets
import pandas
import pyarrow
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

import papa
from papa.library.encoder import TextEncoder
from tests.library.conftest import AS_IT_IS, SLOTS


def test_texts_are_the_same_in_every_container(
    encoder: TextEncoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    frame = reviews["validation"].head(9)
    texts = frame["review"].tolist()
    expected = papa.average(encoder, texts, progress=False)
    data = datasets.Dataset.from_pandas(frame)
    kinds: list[Any] = [
        (one for one in texts),
        frame["review"],
        data["review"],
        frame.sample(frac=1, random_state=0).sort_index(),
        data,
        data.filter(lambda row: True),
        pyarrow.Table.from_pandas(frame),
        frame.to_dict("list"),
    ]
    for kind in kinds:
        found = papa.average(encoder, kind, text="review", progress=False)
        assert torch.equal(found.matrices, expected.matrices), type(kind)
    other = papa.average(encoder, texts[:-1], progress=False)
    assert not torch.equal(other.matrices, expected.matrices), "negative control"


def test_labelled_data_is_the_same_in_every_container(
    encoder: TextEncoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    task = papa.Task(text="review", label="verdict", learning_rate=5e-4, epochs=1)
    sets = {split: datasets.Dataset.from_pandas(frame) for split, frame in reviews.items()}
    mappings = {split: frame.to_dict("list") for split, frame in reviews.items()}
    kinds: list[Any] = [reviews, datasets.DatasetDict(sets), mappings]
    scores = [papa.measure(encoder, kind, task, **AS_IT_IS).results["score"][0] for kind in kinds]
    assert len(set(scores)) == 1


def test_features_are_the_models_own_hidden_states(encoder: TextEncoder, shallow: str) -> None:
    """A text that fills the layout has no gap before [SEP], so the stock model sees the
    same input.
    """
    text = " ".join(["film"] * (SLOTS - 2))
    inputs = encoder.tokenizer([text], return_tensors="pt")
    assert inputs["input_ids"].shape == (1, SLOTS)
    model = AutoModel.from_pretrained(shallow).eval()
    with torch.inference_mode():
        expected = torch.stack(model(**inputs, output_hidden_states=True).hidden_states, dim=2)[0]
    short, full = papa.features(encoder, ["short", text], progress=False)
    torch.testing.assert_close(full, expected, atol=1e-5, rtol=1e-4)
    assert short.shape == (3, 3, 384)


def test_pairs_are_tuples_or_two_columns(encoder: TextEncoder) -> None:
    pairs = [("one text", "its other"), ("a second", "and its own, longer")]
    frame = pandas.DataFrame(pairs, columns=["a", "b"])
    listed = papa.features(encoder, pairs, progress=False)
    tabled = papa.features(encoder, frame, text="a", text_pair="b", progress=False)
    assert all(torch.equal(one, other) for one, other in zip(listed, tabled, strict=True))
    assert [len(one) for one in listed] == [2 + 2 + 3, 2 + 5 + 3]


def test_a_model_in_memory_is_the_same_encoder(encoder: TextEncoder, shallow: str) -> None:
    texts = ["A text about nothing.", "Another."]
    expected, tokenizer = papa.features(encoder, texts, progress=False), encoder.tokenizer
    for kind in (AutoModel, AutoModelForSequenceClassification):
        model = kind.from_pretrained(shallow, dtype=torch.float32).train()
        held = papa.load_encoder(model, tokenizer, slots=SLOTS)
        found = papa.features(held, texts, progress=False)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        assert model.training
        assert model(**tokenizer(texts, padding=True, return_tensors="pt")) is not None
    half = papa.load_encoder(model.to(torch.bfloat16), tokenizer)
    assert half.encoder.word_embeddings.dtype == torch.float32
    assert model.dtype == torch.bfloat16


def test_bars_are_shown_unless_switched_off(
    encoder: TextEncoder, capsys: pytest.CaptureFixture[str]
) -> None:
    papa.average(encoder, ["a text"])
    assert "averaging: 100%" in capsys.readouterr().err
    papa.average(encoder, ["a text"], progress=False)
    assert capsys.readouterr().err == ""
