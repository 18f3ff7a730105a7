"""The likeliest wrong calls of every door, each answered in one sentence that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel

import papa
from papa.library.encoder import Encoder
from papa.models.reference import EMBEDDED
from tests.library.conftest import SLOTS
from tests.library.test_fidelity import bert, gpt, texts

pytestmark = pytest.mark.unchecked

SHAPE = (2, 12, SLOTS, SLOTS)
TASK = papa.Task(text="review", label="verdict")
BATCH = texts()[0]
LABELLED = {**BATCH, "labels": BATCH["input_ids"]}
EFFECTS = pandas.DataFrame({"layer": [0, 0], "head": [0, 1], "method": "effect", "score": [1, 2.0]})
PROBE = replace(TASK, probe=LogisticRegression())
FEW: dict[str, Any] = {"substitutes": ["zeros"], "orders": ["first_to_last"], "keep": [1, 0]}
load = papa.load_encoder


def first(scores: Any, fraction: float | None = 0.5) -> Any:
    return papa.constant_heads(scores, keep=fraction)


def other_classes(reviews: Any) -> Any:
    return {**reviews, "validation": reviews["train"].replace({"positive": "good"})}


def numbers() -> Any:
    return bert("ForSequenceClassification", num_labels=2, problem_type="regression")


def classifier(classes: int, weight: float = 1.0) -> Any:
    model = bert("ForSequenceClassification", num_labels=classes)
    torch.nn.init.constant_(model.classifier.weight, weight)
    return model


class Given:
    """The encoder and the reviews, and the doors with what else they need."""

    def __init__(self, encoder: Encoder, reviews: dict[str, pandas.DataFrame]) -> None:
        self.encoder = encoder
        self.reviews = reviews

    def average(self, data: Any, call: Any = papa.average) -> None:
        call(self.encoder, data, progress=False)

    def enter(self, constants: Any = "zeros", heads: Any = ((0, 0),)) -> Any:
        return papa.replaced(self.encoder, heads, substitute=constants).__enter__()

    def within(self, call: Callable[[], Any]) -> None:
        with papa.replaced(self.encoder, [(0, 0)], substitute="zeros"):
            call()

    def foreign(self) -> Any:
        other_model = AutoModel.from_pretrained(self.encoder.path)
        other_model.embeddings.word_embeddings.weight.data += 0.1
        loaded = load(other_model, self.encoder.tokenizer, slots=SLOTS)
        return papa.average(loaded, ["a text"], progress=False)

    def measure(self, data: Any = None, task: Any = TASK, **options: Any) -> None:
        data = self.reviews if data is None else data
        papa.measure(self.encoder, data, task=task, progress=False, **options)

    def measure_custom(self, **task: Any) -> None:
        self.measure(task=replace(TASK, epochs=1, **task), **FEW)

    def score(self, method: str = "lambda", **options: Any) -> None:
        papa.head_scores(
            self.encoder, self.reviews, task=TASK, method=method, progress=False, **options
        )


@pytest.fixture
def calls(encoder: Encoder, reviews: dict[str, pandas.DataFrame]) -> Given:
    return Given(encoder, reviews)


def ablate(heads: Any, substitute: Any = "zeros") -> Any:
    return papa.ablated(gpt(), heads, substitute=substitute).__enter__()


def hand(
    model: Any, data: Any = None, task: Any = None, method: str = "effect", **options: Any
) -> None:
    options = {"substitute": "zeros", "progress": False, **options}
    papa.head_scores(model, texts() if data is None else data, task=task, method=method, **options)


def measure_fidelity(model: Any, data: Any, score: Any = None) -> None:
    papa.fidelity(model, data, heads=[], substitute="zeros", score=score)


odd = torch.zeros(SHAPE)
odd[1, 3, 4, 5] = float("nan")
Door = Callable[[Given], Any]
DOORS: dict[str, list[tuple[Door, str]]] = {
    "texts": [
        (lambda g: g.average("a text"), "data is one string: give a list, such as ['a text']"),
        (lambda g: g.average([]), "has no rows: give at least one"),
        (lambda g: g.average(g.encoder.tokenizer(["a"])), "tokenised inputs (input_ids"),
        (lambda g: g.average([("a", "b"), "c"]), "text 1 is 'c', expected a pair of strings"),
        (lambda g: g.average([1, 2]), "column 'text' holds int64, not text"),
        (lambda g: g.average(g.reviews), "several tables (train, validation)"),
        (lambda g: g.average({"body": ["a"]}), "no column 'text' (found: body)"),
        (lambda g: g.average(pandas.DataFrame({"text": ["a", 2]})), "cannot be read as a table"),
        (
            lambda g: papa.describe(g.encoder, ["a"], descriptions=["similarty"]),
            "no description 'similarty' (d",
        ),
    ],
    "load_encoder": [
        (lambda g: load("/no/such/folder"), "there is no encoder folder at /no/such/folder"),
        (lambda g: load(torch.nn.Linear(2, 2)), "model is a Linear"),
        (lambda g: load(bert()), "the model BertModel needs a tokenizer"),
        (lambda g: load(EMBEDDED, g.encoder.tokenizer), "leave out tokenizer"),
        (lambda g: load(EMBEDDED, slots=33), "slots is 33, expected an even number from 4 to 512"),
        (lambda g: papa.average("low2", ["a"]), "encoder is a str: give what papa.load_encoder"),
    ],
    "replaced": [
        (lambda g: g.enter("toeplits"), "substitute 'toeplits': "),
        (lambda g: g.enter("relative"), "give average=papa.average("),
        (lambda g: g.enter(numpy.zeros((32, 32))), "[32, 32], expected finite floating-point"),
        (lambda g: g.enter(torch.zeros(SHAPE, dtype=torch.long)), "are torch.int64 of shape"),
        (lambda g: g.enter(odd), f"expected finite floating-point numbers {list(SHAPE)}"),
        (lambda g: g.enter(g.foreign()), "another encoder than all"),
        (lambda g: g.enter("zeros", [(2, 0)]), "there is no head (2, 0): heads are (layer, head)"),
        (lambda g: papa.constants(g.encoder, "local", rank=2), "rank belongs to kind 'low_rank'"),
        (lambda g: g.within(lambda: g.average(["a"])), "inside a block of papa.replaced"),
    ],
    "measure": [
        (lambda g: g.measure("revews", None), "revews"),
        (lambda g: g.measure("reviews"), "leave out task"),
        (lambda g: g.measure({"train": g.reviews["train"]}), "of columns, found ['train'"),
        (lambda g: g.measure(task=None), "the train split has no column 'text' (found: "),
        (lambda g: g.measure(other_classes(g.reviews)), "the validation split: row"),
        (lambda g: g.measure(orders=["lamda"]), "no order 'lamda' (did you mean 'lambda'?)"),
        (lambda g: g.measure(orders=EFFECTS), "found scores of 1 layers of 2 heads, expected 2"),
        (
            lambda g: g.measure(orders=[[(0, 0), (2, 0)]]),
            "holds (2, 0), which is no head or occurs",
        ),
        (lambda g: g.measure(orders=[{"a": 1}]), "found a dict"),
        (lambda g: g.measure(keep=[2]), "'keep.0'"),
        (
            lambda g: g.measure(probe_seeds=3),
            "'probe_seeds': Input should be a valid tuple, found 3",
        ),
        (
            lambda g: g.measure(substitutes=[]),
            "substitutes is list, expected a list of one or more",
        ),
        (
            lambda g: papa.measure(gpt(), texts(), task=replace(TASK, epochs=1)),
            "all arguments of papa.Task but",
        ),
        (lambda g: g.measure(substitutes=odd), "substitutes is Tensor, expected a list"),
        (lambda g: g.measure(substitutes=["trained"], task=PROBE), "leave out 'trained'"),
    ],
    "own code": [
        (
            lambda g: g.measure_custom(probe=3),
            "probe is a int, expected an estimator with fit and predict",
        ),
        (lambda g: g.measure_custom(probe=LogisticRegression(), head="native"), "leave out head"),
        (lambda g: g.measure_custom(score=len), 'head="native"'),
        (lambda g: g.measure_custom(metric=len, label=None), "set label"),
        (
            lambda g: g.measure_custom(metric=lambda *_: 1 / 0),
            "failed on 48 labels (division by zero)",
        ),
        (lambda g: g.measure_custom(metric=lambda *_: torch.nan), "nan on 48 labels"),
    ],
    "head_scores": [
        (lambda g: first([0.9, 0.1]), "numbers of shape [2]"),
        (lambda g: first([[0.9, float("nan")]]), "numbers that are not finite among them"),
        (lambda g: first(EFFECTS, 50), "give either keep"),
        (lambda g: first(EFFECTS, None), "found keep=None"),
        (lambda g: g.score("shaply"), "no method 'shaply' for this model (did you mean"),
        (lambda g: g.score(substitute="zeroes"), "substitute 'zeroes'"),
        (lambda g: g.score(score=len), "tokenizer, substitute_data"),
        (lambda g: hand(gpt(), method="self_lambda"), "'self_lambda' for this model"),
        (lambda g: hand(gpt(), task=TASK), "takes no task"),
        (lambda g: hand(gpt().train()), "in train mode"),
        (lambda g: hand(gpt(), ["a text"]), "tokenizer is None"),
        (lambda g: hand(gpt(), "a text"), "data is one string: give a list, such as"),
        (lambda g: hand(gpt(), [1]), "data holds int, expected texts"),
        (lambda g: hand(gpt(), substitute=["zeros"]), "there is no substitute ['zeros']"),
        (lambda g: hand(classifier(3, torch.nan)), "the loss holds NaN"),
    ],
    "ablated": [
        (lambda g: ablate(3), "there is no head 3: heads are (layer, head), from (0, 0) to"),
        (lambda g: ablate({0: 9}), "there is no head (0, 9)"),
        (lambda g: ablate([], {"kind": "average", "rows": 3}), "rows is for studies only"),
    ],
    "fidelity": [
        (
            lambda g: measure_fidelity(bert(), [{n: values[:3] for n, values in BATCH.items()}]),
            "holds 3 texts",
        ),
        (
            lambda g: measure_fidelity(gpt(), [BATCH], "loss"),
            "score is 'loss', expected a function of",
        ),
        (lambda g: measure_fidelity(numbers(), [BATCH]), "without logits of classes, one number"),
        (
            lambda g: measure_fidelity(bert("ForMaskedLM"), [LABELLED, BATCH]),
            "labels with every batch",
        ),
        (
            lambda g: measure_fidelity(gpt(), [{"input_ids": BATCH["input_ids"][:, :1]}]),
            "no token that counts",
        ),
    ],
}


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_wrong_call_is_one_sentence(
    calls: Given, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for call, sentence in DOORS[door]:
        with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
            call(calls)
        assert "\n" not in str(refused.value)
    assert not calls.encoder.encoder.dispatch.rules, "the encoder is as it was"
