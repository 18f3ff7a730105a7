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
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
)

import papa
from papa.encoders.reference import EMBEDDED, embedded_folder
from papa.library.encoder import TextEncoder
from tests.library.conftest import SLOTS, columns
from tests.library.test_fidelity import bert, gpt, texts

pytestmark = pytest.mark.unchecked

SHAPE = (2, 12, SLOTS, SLOTS)
TASK = papa.Task(text="review", label="verdict")
BATCH = texts()[0]
EFFECTS = pandas.DataFrame({"layer": [0, 0], "head": [0, 1], "method": "effect", "score": [1, 2.0]})
FEW = {"text": ["a film", "no film", "one more", "the last", "or not"]}
NEAREST = papa.Task(label=None, metric="nearest_10", head="own")
load = papa.load_encoder


def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(embedded_folder())


def held(**changes: Any) -> BertModel:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    return BertModel(BertConfig(**{"vocab_size": 50, "hidden_size": 32, **sizes, **changes}))


def broken() -> Any:
    model = bert(BertForSequenceClassification, num_labels=3)
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    return model


class Given:
    """The encoder and the reviews, and the doors with what else they need."""

    def __init__(self, encoder: TextEncoder, reviews: dict[str, pandas.DataFrame]) -> None:
        self.encoder, self.reviews = encoder, reviews

    def average(self, given: Any, call: Any = papa.average) -> None:
        call(self.encoder, given, progress=False)

    def enter(self, constants: Any = "zeros", heads: Any = ((0, 0),)) -> Any:
        return papa.replaced(self.encoder, constants, heads).__enter__()

    def within(self, call: Callable[[], Any]) -> None:
        with papa.replaced(self.encoder, "zeros", [(0, 0)]):
            call()

    def foreign(self) -> Any:
        other = AutoModel.from_pretrained(self.encoder.reference.folder)
        other.embeddings.word_embeddings.weight.data += 0.1
        loaded = load(other, self.encoder.tokenizer, slots=SLOTS)
        return papa.average(loaded, ["a text"], progress=False)

    def measure(self, data: Any = None, task: Any = TASK, **options: Any) -> None:
        data = self.reviews if data is None else data
        papa.measure(self.encoder, data, task, progress=False, **options)

    def score(self, by: str = "lambda", **options: Any) -> None:
        papa.head_scores(self.encoder, self.reviews, TASK, by=by, progress=False, **options)


@pytest.fixture
def given(encoder: TextEncoder, reviews: dict[str, pandas.DataFrame]) -> Given:
    return Given(encoder, reviews)


def ablate(heads: Any, by: Any = "zeros", **options: Any) -> Any:
    return papa.ablated(gpt(), heads, by, **options).__enter__()


def hand(model: Any, data: Any = None, task: Any = None, by: str = "effect", **more: Any) -> None:
    more = {"constants": "zeros", "progress": False, **more}
    papa.head_scores(model, texts() if data is None else data, task, by=by, **more)


def kept(model: Any, data: Any) -> None:
    papa.fidelity(model, [], data=data)


odd = torch.zeros(SHAPE)
odd[1, 3, 4, 5] = float("nan")
CONSTANTS: list[tuple[Any, str]] = [
    ("toeplits", "no constants 'toeplits' of this call (did you mean 'toeplitz'?): take one of"),
    ("relative", "'relative' are made of an average: give average=papa.average("),
    (numpy.zeros((SLOTS, SLOTS)), f"have the shape [32, 32], expected {list(SHAPE)}"),
    (torch.zeros(2, 12, 64, 64), f"have the shape [2, 12, 64, 64], expected {list(SHAPE)}"),
    (torch.zeros(SHAPE, dtype=torch.long), "are of dtype int64, expected floating point"),
    ([1], "constants is a list, expected ConstantMatrices"),
    (odd, "hold nan at [1, 3, 4, 5] (layer, head, from slot, to slot)"),
]
SCORES: list[tuple[Any, str]] = [
    ([0.9, 0.1], "numbers of shape [2]"),
    (EFFECTS[["score"]], "a data frame with the columns score"),
    (EFFECTS[1:], "a data frame of 1 rows, not one for each head from (0, 0) on"),
    (pandas.concat([EFFECTS, EFFECTS.assign(method="lambda")]), "effect, lambda in one frame"),
    ([[0.9, float("nan")]], "numbers that are not finite among them"),
]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"orders": ["lamda"]}, "found 'lamda' (did you mean 'lambda'?)"),
    ({"orders": "lambda"}, "'orders': Input should be a valid tuple, found 'lambda'"),
    ({"orders": EFFECTS}, "found scores of 1 layers of 2 heads, expected 2 layers of"),
    ({"fractions": [2]}, "'fractions.0'"),
    ({"seeds": 3}, "'seeds': Input should be a valid tuple, found 3"),
    ({"constants": []}, "constants is an empty list, expected a list"),
    ({"constants": torch.zeros(SHAPE)}, "constants is a Tensor, expected a list"),
]
Door = Callable[[Given], Any]
DOORS: dict[str, list[tuple[Door, str]]] = {
    "texts": [
        (lambda g: g.average("a text"), "texts is one string: give a list, such as ['a text']"),
        (lambda g: g.average([]), "there is no text: give at least one"),
        (lambda g: g.average(pandas.DataFrame({"text": []})), "has no row"),
        (lambda g: g.average(tokenizer()(["a"])), "tokenised inputs (input_ids, token_type_ids"),
        (lambda g: g.average([("a", "b"), "c"]), "text 1 is a str, expected a pair of strings"),
        (
            lambda g: g.average({"body": ["a"]}),
            "no column 'text' (found: body): name the right one",
        ),
        (lambda g: g.average(pandas.DataFrame({"text": ["a", None]})), "row 2 has no 'text'"),
        (lambda g: g.average(pandas.DataFrame({"text": ["a", 2]})), "cannot be read as a table"),
        (lambda g: papa.describe(g.encoder, ["a"], ["similarty"]), "no description 'similarty' (d"),
    ],
    "load_encoder": [
        (lambda g: load("/no/such/folder"), "there is no encoder folder at /no/such/folder"),
        (lambda g: load("embedded/other"), "encoder 'embedded/other' is unknown"),
        (lambda g: load("no-such/encoder"), "no-such/encoder"),
        (lambda g: load(torch.nn.DataParallel(held())), "found a DataParallel: give what it holds"),
        (
            lambda g: load(GPT2Model(GPT2Config(n_embd=32, n_layer=1, n_head=2)), tokenizer()),
            "architecture 'gpt2' is not supported: use one of bert",
        ),
        (lambda g: load(held(is_decoder=True), tokenizer()), "is causal (is_decoder)"),
        (lambda g: load(held()), "no tokenizer is found with the model BertModel: give its own"),
        (lambda g: load(held(), tokenizer()), "gives ids up to 30521 and the model has embeddings"),
        (lambda g: load(EMBEDDED, tokenizer()), "comes with its own tokenizer"),
        (lambda g: load(EMBEDDED, slots=33), "slots is 33, expected an even number from 4 to 512"),
        (lambda g: load(EMBEDDED, device="gpu"), "no device 'gpu'"),
        (lambda g: load(EMBEDDED, precision="fp32"), "precision is 'fp32': use 'float32' or 'bf"),
        (lambda g: papa.average("low2", ["a"]), "encoder is a str, expected what papa.load_encod"),
    ],
    "replaced": [
        *((lambda g, one=one: g.enter(one), sentence) for one, sentence in CONSTANTS),
        (lambda g: g.enter(g.foreign()), "averaged over the attention of another encoder than all"),
        (lambda g: g.enter("zeros", [(2, 0)]), "there is no head (2, 0): heads are (layer, head)"),
        (lambda g: papa.constants("local", g.encoder, window=32), "takes window from 1 to 31 here"),
        (lambda g: papa.constants("local", g.encoder, rank=2), "takes window from 1 to 31 here"),
        (lambda g: g.within(lambda: g.average(["a"])), "leave the block"),
        (lambda g: g.within(g.measure), "leave the block"),
        (lambda g: g.within(g.score), "leave the block"),
    ],
    "measure": [
        (lambda g: g.measure("revews", None), "there is no task 'revews' (known: reviews"),
        (lambda g: g.measure("reviews"), "is described already"),
        (
            lambda g: g.measure({"train": g.reviews["train"]}),
            "a mapping of columns, found ['train'",
        ),
        (lambda g: g.measure(columns(g.reviews["train"])), "found ['review', 'verdict']"),
        (lambda g: g.measure(task=None), "the train split has no column 'text' (found: "),
        (
            lambda g: g.measure(
                {**g.reviews, "validation": g.reviews["train"].replace({"positive": "good"})}
            ),
            "the validation split: row",
        ),
        *((lambda g, own=own: g.measure(**own), sentence) for own, sentence in OPTIONS),
        (
            lambda g: g.measure({"train": FEW, "validation": FEW}, NEAREST),
            "task 'data' has 5 validation rows, and nearest_10 takes 21 to 2,000 sentences",
        ),
    ],
    "head_scores": [
        *((lambda g, one=one: papa.constant_heads(one, 0.5), said) for one, said in SCORES),
        (lambda g: papa.constant_heads(EFFECTS, 50), "fraction is 50, expected the share"),
        (lambda g: papa.constant_heads(EFFECTS, count=3), "count is 3, expected how many of the 2"),
        (lambda g: papa.constant_heads(EFFECTS), "give fraction, the share of heads that"),
        (lambda g: g.score("shaply"), "no head score 'shaply' for this model (did you mean"),
        (
            lambda g: g.score("shapley", evaluations=93),
            "evaluations is 93, and Shapley values of 24 heads take 94 at least: give as many",
        ),
        (
            lambda g: papa.head_scores(
                g.encoder, g.reviews, replace(TASK, head="own"), by="gates", progress=False
            ),
            "gates scores no heads for task data, which has head: own: take effect",
        ),
        (lambda g: g.score(seeds=3), "be a valid tuple, found 3"),
        (lambda g: g.score(constants="zeroes"), "no constants"),
        (lambda g: g.score(score=len), "of a model that you hold"),
        (lambda g: hand(gpt(), by="gradient"), "'gradient' for this model: give one of lambda, ef"),
        (lambda g: hand(gpt(), task=TASK), "task and rows are of what papa.load_encoder gives"),
        (lambda g: hand(gpt(), by="lambda", score=len), "score is for by='effect'"),
        (
            lambda g: hand(gpt(), [{"input_ids": torch.tensor([[3]])}], by="lambda"),
            "a batch of data holds no token that counts",
        ),
        (lambda g: hand(gpt().train()), "in train mode"),
        (lambda g: hand(gpt(), []), "holds no batch"),
        (lambda g: hand(gpt(), ["a text"]), "data holds a str, expected what the model is"),
        (lambda g: hand(gpt(), constants="zeroes"), "there is no substitute 'zeroes'"),
        (lambda g: hand(broken()), "answers with head (0, 0) replaced holds NaN"),
    ],
    "ablated": [
        (lambda g: ablate([(0, 9)]), "there is no head (0, 9)"),
        (lambda g: ablate([3]), "there is no head 3: heads are (layer, head), from (0, 0) to"),
        (lambda g: ablate(torch.ones(3, 4)), "the mask of heads has the shape (3, 4), expected"),
        (lambda g: ablate([(0, 0)], "average"), 'by="average" is made from text: give data='),
        (
            lambda g: ablate([(0, 0)], {"kind": "streaming", "window": 3}),
            "by='streaming' takes sinks, recent, found window",
        ),
        (lambda g: ablate([(0, 0)], torch.ones(2, 3, 9, 9)), "have the shape (2, 3, 9, 9), expect"),
    ],
    "fidelity": [
        (lambda g: kept(bert(BertModel), [{"input_ids": BATCH["input_ids"][:3]}]), "holds 3 texts"),
        (
            lambda g: kept(bert(BertForSequenceClassification, num_labels=1), [BATCH]),
            "without logits of two classes",
        ),
        (
            lambda g: kept(bert(BertForMaskedLM), [{**BATCH, "labels": BATCH["input_ids"]}, BATCH]),
            "labels with every batch",
        ),
        (lambda g: kept(gpt(), [{"input_ids": BATCH["input_ids"][:, :1]}]), "no token that counts"),
    ],
}


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_wrong_call_is_one_sentence(
    given: Given, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for call, sentence in DOORS[door]:
        with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
            call(given)
        assert "\n" not in str(refused.value)
    assert not given.encoder.encoder.dispatch.rules, "the encoder is as it was"
