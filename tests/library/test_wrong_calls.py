"""The likeliest wrong calls, each answered in one sentence that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import datasets
import pandas
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, GPT2Config, GPT2Model

import papa
from papa.attention.constants import ConstantMatrices
from papa.encoders.reference import embedded_folder
from tests.library.conftest import columns

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
DECODER: dict[str, Any] = {"n_embd": 32, "n_layer": 1, "n_head": 2}
TEXTS: dict[str, tuple[Any, str]] = {
    "one string": ("a text", "texts is one string: give a list, such as ['a text']"),
    "no text": ([], "there is no text: give at least one"),
    "no row": (pandas.DataFrame({"text": []}), "has no row"),
    "tokenised": (
        {"input_ids": [[1]], "attention_mask": [[1]]},
        "tokenised inputs (input_ids, attention_mask)",
    ),
    "tokenised data set": (
        datasets.Dataset.from_dict({"input_ids": [[1]]}),
        "holds tokenised inputs",
    ),
    "tensor": (torch.ones(2, 3, dtype=torch.long), "text 0 is a Tensor, expected a string"),
    "splits": (
        datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}),
        "give one of them",
    ),
    "another column": (
        pandas.DataFrame({"body": ["a"]}),
        "no column 'text' (found: body): name the right one, such",
    ),
    "a gap": (pandas.DataFrame({"text": ["a", None]}), "row 2 has no 'text'"),
    "numbers": (pandas.DataFrame({"text": [1, 2]}), "column 'text' holds int64, not text"),
    "mixed": (pandas.DataFrame({"text": ["a", 2]}), "cannot be read as a table"),
    "a number": (3, "texts is a int: give a list of strings"),
    "mixed list": (["a", None], "text 1 is a NoneType, expected a string"),
    "pair and text": ([("a", "b"), "c"], "text 1 is a str, expected a pair of strings"),
}


@pytest.mark.parametrize("case", sorted(TEXTS))
@pytest.mark.parametrize("call", [papa.average, papa.features])
def test_texts_that_are_none(
    encoder: papa.TextEncoder, case: str, call: Callable[..., Any]
) -> None:
    texts, sentence = TEXTS[case]
    _refuses(lambda: call(encoder, texts, progress=False), sentence)


def test_a_tokenised_batch(encoder: papa.TextEncoder) -> None:
    batch = AutoTokenizer.from_pretrained(embedded_folder())(["a", "b"], padding=True)
    _refuses(
        lambda: papa.average(encoder, batch),
        "tokenised inputs (input_ids, token_type_ids, attention_mask)",
    )


def test_encoders_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    small, decoder = BertConfig(vocab_size=50, **SMALL), GPT2Config(**DECODER)
    with torch.device("meta"):
        hollow = BertModel(small)
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder())
    load = papa.load_encoder
    _refuses(lambda: load("/no/such/folder"), "there is no encoder folder at /no/such/folder")
    _refuses(lambda: load("embedded/other"), "encoder 'embedded/other' is unknown")
    _refuses(lambda: load("no-such/encoder"), "no-such/encoder")
    _refuses(
        lambda: load(GPT2Model(decoder), tokenizer),
        "architecture 'gpt2' is not supported: use one of bert",
    )
    causal = BertModel(BertConfig(vocab_size=50, is_decoder=True, **SMALL))
    _refuses(lambda: load(causal, tokenizer), "is causal (is_decoder)")
    _refuses(
        lambda: load(hollow, tokenizer),
        "no weights in memory (embeddings.word_embeddings.weight is on the meta",
    )
    _refuses(
        lambda: load(BertModel(small)),
        "has no tokenizer with it: give its own as the second argument",
    )
    _refuses(
        lambda: load(BertModel(small), tokenizer),
        "gives ids up to 30521 and the model has embeddings for 50 tokens",
    )
    _refuses(lambda: load("embedded/all-MiniLM-L6-v2", tokenizer), "comes with its own tokenizer")
    _refuses(lambda: load("embedded/all-MiniLM-L6-v2", slots=1024), "an even number from 4 to 512")
    for slots in (33, 0):
        _refuses(
            lambda slots=slots: load("embedded/all-MiniLM-L6-v2", slots=slots),  # type: ignore[misc]
            f"slots is {slots}, expected an even number",
        )


@pytest.mark.parametrize(
    ("device", "sentence"), [("cuda", "device 'cuda' needs a GPU"), ("gpu", "no device 'gpu'")]
)
def test_devices_that_are_not_here(device: str, sentence: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder())
    held = BertModel(BertConfig(vocab_size=30522, **SMALL))
    _refuses(lambda: papa.load_encoder("embedded/all-MiniLM-L6-v2", device=device), sentence)
    _refuses(lambda: papa.load_encoder(held, tokenizer, device=device), sentence)


def test_heads_and_constants_that_do_not_fit(encoder: papa.TextEncoder, shallow: str) -> None:
    constants = papa.average(encoder, ["a text"], progress=False)

    def enter(heads: Any, given: ConstantMatrices = constants) -> None:
        with papa.replaced(encoder, given, heads):
            pytest.fail("this must be refused")

    _refuses(
        lambda: enter([(2, 0)]),
        "there is no head (2, 0): heads are (layer, head), from (0, 0) to (1, 11)",
    )
    _refuses(lambda: enter([(0, -1)]), "there is no head (0, -1)")
    other = AutoModel.from_pretrained(shallow)
    other.embeddings.word_embeddings.weight.data += 0.1
    held = papa.load_encoder(other, encoder.tokenizer, slots=encoder.slots)
    foreign = papa.average(held, ["a text"], progress=False)
    _refuses(
        lambda: enter([(0, 0)], foreign),
        "averaged over the attention of another encoder than all-MiniLM-L6-v2",
    )
    longer = papa.load_encoder(shallow, slots=64)
    long = papa.average(longer, ["a text"], progress=False)
    _refuses(lambda: enter([(0, 0)], long), "for 64 slots and the encoder was loaded with 32")
    _refuses(
        lambda: papa.constant_heads(torch.rand(6, 12), 50), "fraction is 50, expected the share"
    )


def test_labelled_data_that_is_none(
    encoder: papa.TextEncoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    def measure(data: Any, task: papa.Task | None = None, **options: Any) -> None:
        papa.measure(encoder, data, task, progress=False, **options)

    task = papa.Task(text="review", label="verdict")
    frame = reviews["train"]
    _refuses(lambda: measure("revews"), "there is no task 'revews' (known: reviews")
    _refuses(lambda: measure("reviews", task), "is described already")
    _refuses(
        lambda: measure({"train": frame}, task), "found train: give {'train': …, 'validation': …}"
    )
    _refuses(
        lambda: measure(columns(frame), task),
        "found review, verdict: give {'train': …, 'validation': …}",
    )
    _refuses(lambda: measure(reviews), "the train split has no column 'text' (found: ")
    unlabelled = {split: one[["review"]] for split, one in reviews.items()}
    _refuses(
        lambda: measure(unlabelled, task),
        "the train split has no column 'verdict' (found: review): name the",
    )
    _refuses(
        lambda: measure({**reviews, "validation": ["a", "b"]}, task),
        "the validation split is a list",
    )
    renamed = {**reviews, "validation": frame.replace({"verdict": {"positive": "good"}})}
    _refuses(lambda: measure(renamed, task), "the validation split: row")
    _refuses(
        lambda: measure(reviews, task, orders=["lamda"]),
        "'orders.0' is 'lamda' (did you mean 'lambda'?): use",
    )
    _refuses(lambda: measure(reviews, task, fractions=[2]), "'fractions.0'")
    _refuses(lambda: measure(reviews, task, seeds=[]), "'seeds'")


@pytest.mark.unchecked
@pytest.mark.parametrize("given", ["low2", BertModel(BertConfig(vocab_size=50, **SMALL)), None])
def test_what_is_no_loaded_encoder(given: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: papa.average(given, ["a"]),
        lambda: papa.features(given, ["a"]),
        lambda: papa.replaced(given, "zeros", [(0, 0)]).__enter__(),
        lambda: papa.constants("zeros", given),
        lambda: papa.train_lambda(given, "zeros", "reviews"),
        lambda: papa.score_heads(given, "zeros", "reviews", by="distance"),
        lambda: papa.fit_probe(given, "reviews"),
        lambda: papa.measure(given, "reviews"),
        lambda: papa.describe(given, ["a"]),
    ]
    for call in calls:
        found = type(given).__name__
        _refuses(call, f"encoder is a {found}, expected what papa.load_encoder gives: load it")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"fractions": 0.5}, "'fractions' is 0.5, expected a list"),
        ({"fractions": "1"}, "'fractions' is '1', expected a list"),
        ({"seeds": 3}, "'seeds' is 3, expected a list"),
        ({"ranking_seeds": 3}, "'ranking.seeds' is 3, expected a list"),
        ({"orders": "lambda"}, "'orders' is 'lambda', expected a list"),
        ({"constants": []}, "constants is an empty list, expected a list of kinds or of matrices"),
    ],
)
def test_values_that_are_no_lists(
    encoder: papa.TextEncoder,
    reviews: dict[str, pandas.DataFrame],
    given: dict[str, Any],
    sentence: str,
) -> None:
    task = papa.Task(text="review", label="verdict")
    _refuses(lambda: papa.measure(encoder, reviews, task, **given), sentence)


@pytest.mark.unchecked
def test_values_of_other_types(
    encoder: papa.TextEncoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    task, three = papa.Task(text="review", label="verdict"), cast("Any", 3)
    _refuses(
        lambda: papa.train_lambda(encoder, "zeros", reviews, task, seeds=three), "expected a list"
    )
    _refuses(lambda: papa.fit_probe(encoder, reviews, task, seeds=three), "expected a list")
    matrices = cast("Any", torch.ones(2, 12, 32, 32))
    _refuses(
        lambda: papa.constants("low_rank", encoder, average=matrices),
        "constants 'low_rank' are made of an average: give average=papa.average(",
    )
    slots = cast("Any", 32.0)
    _refuses(
        lambda: papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=slots),
        "slots is 32.0, expected",
    )


def test_head_scores_that_nobody_can_give(
    encoder: papa.TextEncoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    """Before anything is tokenised: text that is no task is not looked at."""

    def score(by: str, **options: Any) -> None:
        papa.score_heads(encoder, "zeros", {}, by=by, progress=False, **options)

    _refuses(lambda: score("sharpley"), "there is no head score 'sharpley' (known: shapley, ")
    _refuses(
        lambda: score("shapley", evaluations=93),
        "evaluations is 93, and Shapley values of 24 heads take 94 at least: give as many",
    )
    _refuses(
        lambda: score("greedy", evaluations=23),
        "evaluations is 23, and the steps of a greedy order of 24 heads take 24 at least",
    )
    own = papa.Task(text="review", label="verdict", head="own")
    _refuses(
        lambda: papa.score_heads(encoder, "zeros", reviews, own, by="gates", progress=False),
        "L0 gates are trained with a probe, and task data has head: own: take effect",
    )


def test_too_few_sentences_for_their_neighbours_are_told_before_any_is_embedded(
    encoder: papa.TextEncoder,
) -> None:
    few = {"text": ["a film", "no film", "one more", "the last", "or not"]}
    task = papa.Task(label=None, metric="nearest_10", head="own")
    _refuses(
        lambda: papa.measure(encoder, {"train": few, "validation": few}, task, progress=False),
        "task 'data' has 5 validation rows, and nearest_10 takes 21 to 2,000 sentences",
    )


def _refuses(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
        call()
    assert "\n" not in str(refused.value)
