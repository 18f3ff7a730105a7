"""All containers hold the same texts, and a model in memory is the same encoder."""

import datasets
import pandas
import pyarrow
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import papa
from papa.errors import DataError
from papa.library.encoder import Encoder
from tests.library.conftest import SLOTS


def test_every_container_is_read(encoder: Encoder, reviews: dict[str, pandas.DataFrame]) -> None:
    frame = reviews["validation"].head(9)
    texts = frame["review"].tolist()
    expected = papa.average(encoder, texts, progress=False)
    data = datasets.Dataset.from_pandas(frame)
    containers: list[object] = [
        (text for text in texts),
        frame["review"],
        data["review"],
        frame.sample(frac=1, random_state=0).sort_index(),
        data,
        data.filter(lambda row: True),
        pyarrow.Table.from_pandas(frame),
        frame.to_dict("list"),
    ]
    for container in containers:
        average = papa.average(encoder, container, text="review", progress=False)
        assert torch.equal(average.matrices, expected.matrices), type(container)
    average_of_others = papa.average(encoder, texts[:-1], progress=False)
    assert not torch.equal(average_of_others.matrices, expected.matrices), "negative control"


def test_a_string_in_place_of_texts_is_refused(encoder: Encoder) -> None:
    with pytest.raises(DataError, match="one string"):
        papa.average(encoder, "one string", progress=False)


def test_pairs_are_tuples_or_two_columns(encoder: Encoder) -> None:
    pairs = [("one text", "its other"), ("a second", "and its own, longer")]
    frame = pandas.DataFrame(pairs, columns=["a", "b"])
    listed = papa.features(encoder, pairs, progress=False)
    tabled = papa.features(encoder, frame, text="a", text_pair="b", progress=False)
    assert all(torch.equal(text, row) for text, row in zip(listed, tabled, strict=True))
    assert [len(text) for text in listed] == [2 + 2 + 3, 2 + 5 + 3]


def test_a_model_in_memory_is_the_same_encoder(encoder: Encoder, shallow: str) -> None:
    texts = ["A text about nothing.", "Another."]
    expected = papa.features(encoder, texts, progress=False)
    tokenizer = encoder.tokenizer
    model = AutoModelForSequenceClassification.from_pretrained(shallow).train()
    in_memory = papa.load_encoder(model, tokenizer, slots=SLOTS)
    token_states = papa.features(in_memory, texts, progress=False)
    torch.testing.assert_close(token_states, expected, atol=1e-5, rtol=0)
    assert model.training
    half = papa.load_encoder(model.to(torch.bfloat16), tokenizer)
    assert half.encoder.word_embeddings.dtype == torch.float32
    assert model.dtype == torch.bfloat16
