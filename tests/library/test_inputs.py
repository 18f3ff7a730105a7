"""Lists, pairs, data sets and data frames are the same text; a model that is held is the same
encoder."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import datasets
import pandas
import pyarrow
import pytest
import tokenizers
import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

import papa
from papa.errors import DataError
from papa.library.batches import batches_of
from papa.library.encoder import Encoder
from tests.library.conftest import AS_IT_IS, SLOTS
from tests.library.test_fidelity import gpt
from tests.make import SIZES, model_factory


def test_texts_are_the_same_in_every_container(
    encoder: Encoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    frame = reviews["validation"].head(9)
    texts = frame["review"].tolist()
    expected = papa.average(encoder, texts, progress=False)
    data = datasets.Dataset.from_pandas(frame)
    kinds: list[Any] = [
        (text for text in texts),
        frame["review"],
        data["review"],
        frame.sample(frac=1, random_state=0).sort_index(),
        data,
        data.filter(lambda row: True),
        pyarrow.Table.from_pandas(frame),
        frame.to_dict("list"),
    ]
    for kind in kinds:
        average = papa.average(encoder, kind, text="review", progress=False)
        assert torch.equal(average.matrices, expected.matrices), type(kind)
    average_of_others = papa.average(encoder, texts[:-1], progress=False)
    assert not torch.equal(average_of_others.matrices, expected.matrices), "negative control"


def test_labelled_data_is_the_same_in_every_container(
    encoder: Encoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    task = papa.Task(text="review", label="verdict", learning_rate=5e-4, epochs=1)
    sets = {split: datasets.Dataset.from_pandas(frame) for split, frame in reviews.items()}
    mappings = {split: frame.to_dict("list") for split, frame in reviews.items()}
    kinds: list[Any] = [reviews, datasets.DatasetDict(sets), mappings]
    scores = [
        papa.measure(encoder, kind, task=task, **AS_IT_IS).results["score"][0] for kind in kinds
    ]
    assert len(set(scores)) == 1


def test_features_are_the_models_own_hidden_states(encoder: Encoder, shallow: str) -> None:
    """A text that fills the layout has no gap before [SEP]: the stock model sees the same."""
    text = " ".join(["film"] * (SLOTS - 2))
    inputs = encoder.tokenizer([text], return_tensors="pt")
    assert inputs["input_ids"].shape == (1, SLOTS)
    model = AutoModel.from_pretrained(shallow).eval()
    with torch.inference_mode():
        expected = torch.stack(model(**inputs, output_hidden_states=True).hidden_states, dim=2)[0]
    short, full = papa.features(encoder, ["short", text], progress=False)
    torch.testing.assert_close(full, expected, atol=1e-5, rtol=1e-4)
    assert short.shape == (3, 3, 384)


def test_pairs_are_tuples_or_two_columns(encoder: Encoder) -> None:
    pairs = [("one text", "its other"), ("a second", "and its own, longer")]
    frame = pandas.DataFrame(pairs, columns=["a", "b"])
    listed = papa.features(encoder, pairs, progress=False)
    tabled = papa.features(encoder, frame, text="a", text_pair="b", progress=False)
    assert all(
        torch.equal(token_states, from_table)
        for token_states, from_table in zip(listed, tabled, strict=True)
    )
    assert [len(token_states) for token_states in listed] == [2 + 2 + 3, 2 + 5 + 3]


def test_a_model_in_memory_is_the_same_encoder(encoder: Encoder, shallow: str) -> None:
    texts = ["A text about nothing.", "Another."]
    expected = papa.features(encoder, texts, progress=False)
    tokenizer = encoder.tokenizer
    for kind in (AutoModel, AutoModelForSequenceClassification):
        model = kind.from_pretrained(shallow, dtype=torch.float32).train()
        in_memory = papa.load_encoder(model, tokenizer, slots=SLOTS)
        token_states = papa.features(in_memory, texts, progress=False)
        torch.testing.assert_close(token_states, expected, atol=1e-5, rtol=0)
        assert model.training
        assert model(**tokenizer(texts, padding=True, return_tensors="pt")) is not None
    half = papa.load_encoder(model.to(torch.bfloat16), tokenizer)
    assert half.encoder.word_embeddings.dtype == torch.float32
    assert model.dtype == torch.bfloat16


def test_bars_are_shown_unless_switched_off(
    encoder: Encoder, capsys: pytest.CaptureFixture[str]
) -> None:
    papa.average(encoder, ["a text"])
    assert "averaging: 100%" in capsys.readouterr().err
    papa.average(encoder, ["a text"], progress=False)
    assert capsys.readouterr().err == ""


TEXTS = [
    f"{article} film {'to see ' * times}"
    for article in ("A", "Such a", "No")
    for times in (0, 1, 4)
]
HEADS = [(0, 1), (1, 3)]


@pytest.fixture(scope="module")
def model(shallow: str) -> Any:
    return AutoModel.from_pretrained(shallow)


@pytest.fixture(scope="module")
def tokenizer(shallow: str) -> Any:
    return AutoTokenizer.from_pretrained(shallow)


def test_texts_a_table_and_one_encoding_give_the_numbers_of_batches(
    model: Any, tokenizer: Any
) -> None:
    encoding = tokenizer(TEXTS, padding=True, return_tensors="pt")
    texts_with_tokenizer = {"data": TEXTS, "tokenizer": tokenizer}
    table = pandas.DataFrame({"text": TEXTS})
    for substitute in ("zeros", "average"):
        expected = papa.fidelity(model, [encoding], heads=HEADS, substitute=substitute)
        for arguments in (
            texts_with_tokenizer,
            {"data": encoding},
            {**texts_with_tokenizer, "data": table},
        ):
            scores = papa.fidelity(model, heads=HEADS, substitute=substitute, **arguments)
            pandas.testing.assert_frame_equal(scores, expected, atol=1e-5)
    options: dict[str, Any] = {"method": "effect", "substitute": "mean_output", "progress": False}
    expected = papa.head_scores(model, [encoding], **options)
    scores = papa.head_scores(model, TEXTS, tokenizer=tokenizer, **options)
    pandas.testing.assert_frame_equal(scores, expected, atol=1e-5)
    with papa.ablated(model, HEADS, substitute="average", data=TEXTS, tokenizer=tokenizer):
        inside = model(**encoding).last_hidden_state
    with papa.ablated(model, HEADS, substitute="average", data=[encoding]):
        torch.testing.assert_close(model(**encoding).last_hidden_state, inside)


def test_texts_of_a_decoder_need_no_token_for_padding() -> None:
    words = {
        word: number for number, word in enumerate(["A", "Such", "a", "No", "film", "to", "see"], 1)
    }
    split = tokenizers.Tokenizer(tokenizers.models.WordLevel(words))
    split.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    decoder = gpt()
    bare = PreTrainedTokenizerFast(tokenizer_object=split)
    assert bare.pad_token is None
    first, *other_batches = batches_of(TEXTS * 3, decoder, bare)
    assert [len(batch["input_ids"]) for batch in (first, *other_batches)] == [16, 11]
    unpadded = [
        {"input_ids": ids[mask.bool()][None]}
        for batch in (first, *other_batches)
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    fidelity = papa.fidelity(decoder, TEXTS * 3, heads=HEADS, tokenizer=bare)
    expected = papa.fidelity(decoder, unpadded, heads=HEADS)
    assert fidelity["value"].to_dict() == pytest.approx(expected["value"].to_dict(), abs=1e-4)
    with pytest.raises(papa.PapaError, match=r"text 0 has no token"):
        batches_of([" "], decoder, bare)


def test_labels_are_what_the_head_calls_them(model: Any, tokenizer: Any) -> None:
    classifier = BertForSequenceClassification(model.config).eval()
    classifier.config.id2label = {0: "bad", 1: "good"}
    classifier.config.label2id = {"bad": 0, "good": 1}
    of_classes = datasets.ClassLabel(names=["good", "bad"])
    classes = datasets.Features(text=datasets.Value("string"), label=of_classes)
    dataset = datasets.Dataset.from_dict({"text": TEXTS[:2], "label": [0, 1]}, classes)
    table = {"text": TEXTS[:2], "text_pair": ["b", "c"], "label": ["good", "bad"]}
    (batch,) = batches_of(table, classifier, tokenizer)
    assert batch["labels"].tolist() == [1, 0]
    assert batches_of(dataset, classifier, tokenizer)[0]["labels"].tolist() == [1, 0], "by name"
    assert batch["token_type_ids"].sum() > 0, "pairs"
    assert "labels" not in batches_of(table, model, tokenizer)[0]
    with pytest.raises(papa.PapaError, match="labels fine are not in"):
        batches_of({"text": ["a"], "label": ["fine"]}, classifier, tokenizer)


def classifier_of(model: Any) -> Any:
    """Two classes without names, with a configuration of its own."""
    config = copy.deepcopy(model.config)
    config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    config.label2id = {"LABEL_0": 0, "LABEL_1": 1}
    return BertForSequenceClassification(config).eval()


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_label_that_is_no_class_is_refused_with_its_row(
    model: Any, tokenizer: Any, wrong: int
) -> None:
    classes = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"])
    )
    rows = pyarrow.table({"text": TEXTS[:3], "label": [0, 1, wrong]})
    info = datasets.DatasetInfo(features=classes)
    table = datasets.Dataset(datasets.table.InMemoryTable(rows), info=info)
    classifier = classifier_of(model)
    classifier.config.label2id = {"bad": 0, "good": 1}
    with pytest.raises(DataError, match=f"row 3 .*{wrong}"):
        batches_of(table, classifier, tokenizer)


def test_named_classes_need_a_head_that_names_its_own(model: Any, tokenizer: Any) -> None:
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["good", "bad"])
    )
    dataset = datasets.Dataset.from_dict({"text": TEXTS[:2], "label": [0, 1]}, features)
    classifier = classifier_of(model)
    assert "LABEL_0" in classifier.config.label2id
    with pytest.raises(DataError, match=r"good, bad.*LABEL_0"):
        batches_of(dataset, classifier, tokenizer)
    classifier.config.label2id = {"bad": 0, "good": 1}
    assert batches_of(dataset, classifier, tokenizer)[0]["labels"].tolist() == [1, 0]


def test_labels_that_are_decided_one_by_one_are_lists(model: Any, tokenizer: Any) -> None:
    classifier = classifier_of(model)
    classifier.config.problem_type = "multi_label_classification"
    table = {"text": TEXTS[:2], "label": [[0, 1], [1, 1]]}
    (batch,) = batches_of(table, classifier, tokenizer)
    assert torch.equal(batch["labels"], torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    with pytest.raises(DataError, match="row 2"):
        batches_of({**table, "label": [[0, 1], [1]]}, classifier, tokenizer)


POSITIONS = {"Bert": 64, "RobertaPreLayerNorm": 62, "XLMRobertaXL": 62, "Data2VecText": 62}


@pytest.mark.parametrize("family", POSITIONS)
def test_texts_end_where_the_model_does_and_are_counted(family: str, tokenizer: Any) -> None:
    sizes = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    model = model_factory(family, **sizes, type_vocab_size=2, pad_token_id=1)().eval()
    long = ["film " * 80] * 2 + ["A film to see"] * 4
    unlimited = copy.copy(tokenizer)
    unlimited.model_max_length = int(1e30)
    with pytest.warns(UserWarning, match=f"2 of 6 texts .* {POSITIONS[family]} tokens"):
        (batch,) = batches_of(long, model, unlimited)
    assert batch["input_ids"].shape == (6, POSITIONS[family])
    assert model(**batch).last_hidden_state.isfinite().all()
    unlimited.model_max_length = 16
    with pytest.warns(UserWarning, match="2 of 6 texts .* 16 tokens"):
        assert batches_of(long, model, unlimited)[0]["input_ids"].shape == (6, 16)


def test_averages_that_are_too_short_are_refused_before_training(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("papa.native.scores.train_lambda", lambda *_, **__: pytest.fail("late"))
    with pytest.raises(papa.PapaError, match=r"a text has 13 tokens and the constant matrices"):
        papa.head_scores(
            model, TEXTS, tokenizer=tokenizer, substitute_data=TEXTS[:1], progress=False
        )


def test_describe_reads_a_model_with_its_tokenizer(model: Any, tokenizer: Any) -> None:
    descriptions = papa.describe(
        model, TEXTS, descriptions=["separators"], tokenizer=tokenizer, progress=False
    )
    loaded = papa.load_encoder(model, tokenizer)
    expected = papa.describe(loaded, TEXTS, descriptions=["separators"], progress=False)
    pandas.testing.assert_frame_equal(descriptions, expected)


@pytest.mark.parametrize("kind", [dict, partial(pandas.DataFrame, dtype=object)])
def test_half_an_emoji_is_named_by_its_row_with_its_column(encoder: Encoder, kind: Any) -> None:
    table = kind({"review": ["whole", "half \ud83d"]})
    with pytest.raises(papa.PapaError, match=r"row 2 .*'review'"):
        papa.average(encoder, table, text="review", progress=False)
