"""Texts and tables for a model in memory: batches, labels by the head's names, and truncation."""

import copy

import datasets
import pandas
import pyarrow
import pytest
import tokenizers
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BatchEncoding,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers import PreTrainedTokenizerBase as Tokenizer

import papa
from papa.errors import DataError
from papa.library.batches import batches_of
from tests.make import SIZES, model_factory, outputs_of
from tests.native.models import gpt

TEXTS = [
    f"{article} film {'to see ' * times}"
    for article in ("A", "Such a", "No")
    for times in (0, 1, 4)
]
HEADS = [(0, 1), (1, 3)]
POSITIONS = {"Bert": 64, "RobertaPreLayerNorm": 62, "XLMRobertaXL": 62, "Data2VecText": 62}


@pytest.fixture(scope="module")
def model(shallow: str) -> PreTrainedModel:
    return AutoModel.from_pretrained(shallow)


@pytest.fixture(scope="module")
def tokenizer(shallow: str) -> Tokenizer:
    return AutoTokenizer.from_pretrained(shallow)


@pytest.fixture(scope="module")
def encoding(tokenizer: Tokenizer) -> BatchEncoding:
    return tokenizer(TEXTS, padding=True, return_tensors="pt")


@pytest.fixture
def classifier(model: PreTrainedModel) -> PreTrainedModel:
    """Two classes with names."""
    config = copy.deepcopy(model.config)
    config.id2label = {0: "bad", 1: "good"}
    config.label2id = {"bad": 0, "good": 1}
    return BertForSequenceClassification(config).eval()


@pytest.mark.parametrize("container", ["texts", "table", "encoding"])
def test_texts_give_the_numbers_of_batches(
    model: PreTrainedModel, tokenizer: Tokenizer, encoding: BatchEncoding, container: str
) -> None:
    table = pandas.DataFrame({"text": TEXTS})
    data = {"texts": TEXTS, "table": table, "encoding": encoding}[container]
    expected = papa.fidelity(model, [encoding], heads=HEADS, substitute="average")
    used_tokenizer = None if container == "encoding" else tokenizer
    scores = papa.fidelity(model, data, heads=HEADS, substitute="average", tokenizer=used_tokenizer)
    pandas.testing.assert_frame_equal(scores, expected, atol=1e-5)


def test_texts_average_as_batches(
    model: PreTrainedModel, tokenizer: Tokenizer, encoding: BatchEncoding
) -> None:
    with papa.ablated(model, HEADS, substitute="average", data=[encoding]):
        expected = outputs_of(model, encoding).last_hidden_state
    with papa.ablated(model, HEADS, substitute="average", data=TEXTS, tokenizer=tokenizer):
        torch.testing.assert_close(outputs_of(model, encoding).last_hidden_state, expected)


def test_token_ids_of_another_tokenizer_are_refused(classifier: PreTrainedModel) -> None:
    beyond = classifier.config.vocab_size
    batches = [{"input_ids": torch.tensor([[5, 6, 7]])}, {"input_ids": torch.tensor([[5, beyond]])}]
    with pytest.raises(DataError, match=rf"batch 1 .*{beyond}"):
        papa.fidelity(classifier, batches, heads=HEADS)


def test_a_text_that_is_no_batch_is_refused(classifier: PreTrainedModel) -> None:
    with pytest.raises(DataError, match=r"batch 0 .*DataLoader"):
        papa.fidelity(classifier, [{"input_ids": torch.tensor([5, 6, 7])}], heads=HEADS)


def test_texts_of_a_decoder_need_no_token_for_padding() -> None:
    words = ["A", "Such", "a", "No", "film", "to", "see"]
    vocabulary = {word: number for number, word in enumerate(words, 1)}
    split = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary))
    split.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    without_pad = PreTrainedTokenizerFast(tokenizer_object=split)
    batches = batches_of(TEXTS, gpt(), without_pad)
    sizes = [batch["input_ids"].shape for batch in batches]
    assert sizes == [(1, len(text.split())) for text in TEXTS]
    fidelity = papa.fidelity(gpt(), TEXTS, heads=HEADS, tokenizer=without_pad)
    expected = papa.fidelity(gpt(), batches, heads=HEADS)
    assert fidelity["value"].to_dict() == pytest.approx(expected["value"].to_dict(), abs=1e-4)
    with pytest.raises(papa.PapaError, match="text 0"):
        batches_of([" "], gpt(), without_pad)


def labelled(names: list[str], labels: list[int]) -> datasets.Dataset:
    """Texts with labels that have names."""
    classes = datasets.ClassLabel(names=names)
    features = datasets.Features(text=datasets.Value("string"), label=classes)
    rows = pyarrow.table({"text": TEXTS[: len(labels)], "label": labels})
    info = datasets.DatasetInfo(features=features)
    return datasets.Dataset(datasets.table.InMemoryTable(rows), info=info)


def test_labels_have_the_heads_numbers(classifier: PreTrainedModel, tokenizer: Tokenizer) -> None:
    table = {"text": TEXTS[:2], "label": ["good", "bad"]}
    for data in (table, labelled(["good", "bad"], [0, 1])):
        batches = batches_of(data, classifier, tokenizer)
        assert [batch["labels"].tolist() for batch in batches] == [[1], [0]]
    with pytest.raises(papa.PapaError, match="fine"):
        batches_of({"text": ["a"], "label": ["fine"]}, classifier, tokenizer)


def test_a_model_without_head_takes_no_labels(model: PreTrainedModel, tokenizer: Tokenizer) -> None:
    (batch,) = batches_of({"text": ["a"], "label": ["good"]}, model, tokenizer)
    assert "labels" not in batch


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_that_is_no_class_names_its_row(
    classifier: PreTrainedModel, tokenizer: Tokenizer, label: int
) -> None:
    with pytest.raises(DataError, match=f"row 3 .*{label}"):
        batches_of(labelled(["bad", "good"], [0, 1, label]), classifier, tokenizer)


def test_named_labels_need_a_named_head(classifier: PreTrainedModel, tokenizer: Tokenizer) -> None:
    classifier.config.label2id = {"LABEL_0": 0, "LABEL_1": 1}
    classifier.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    with pytest.raises(DataError, match=r"good, bad.*LABEL_0"):
        batches_of(labelled(["good", "bad"], [0, 1]), classifier, tokenizer)


def test_multiple_labels_are_lists(classifier: PreTrainedModel, tokenizer: Tokenizer) -> None:
    classifier.config.problem_type = "multi_label_classification"
    table = {"text": TEXTS[:2], "label": [[0, 1], [1, 1]]}
    labels = [batch["labels"].tolist() for batch in batches_of(table, classifier, tokenizer)]
    assert labels == [[[0.0, 1.0]], [[1.0, 1.0]]]
    with pytest.raises(DataError, match="row 2"):
        batches_of({**table, "label": [[0, 1], [1]]}, classifier, tokenizer)


@pytest.mark.parametrize("family", POSITIONS)
def test_truncated_texts_are_counted(family: str, tokenizer: Tokenizer) -> None:
    settings = SIZES | {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
    settings |= {"type_vocab_size": 2, "pad_token_id": 1}
    model = model_factory(family, settings)().eval()
    texts = ["film " * 80] * 2 + ["A film to see"] * 4
    unlimited = copy.copy(tokenizer)
    unlimited.model_max_length = int(1e30)
    with pytest.warns(UserWarning, match=f"2 of 6 texts .* {POSITIONS[family]} tokens"):
        batches = batches_of(texts, model, unlimited)
    assert batches[0]["input_ids"].shape == (1, POSITIONS[family])
    assert outputs_of(model, batches[0]).last_hidden_state.isfinite().all()
