"""The likeliest wrong calls of every door, each answered in one sentence that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import datasets
import numpy
import pandas
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerBase,
)

import papa
from papa.encoders.reference import EMBEDDED, embedded_folder
from papa.library.encoder import TextEncoder
from tests.library.conftest import SLOTS, columns
from tests.library.test_fidelity import bert, gpt, texts

pytestmark = pytest.mark.unchecked

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
SHAPE = (2, 12, SLOTS, SLOTS)
TASK = papa.Task(text="review", label="verdict")
BATCH = texts()[0]
EFFECTS = pandas.DataFrame({"layer": [0, 0], "head": [0, 1], "method": "effect", "score": [1, 2.0]})


def odd(value: float) -> Tensor:
    matrices = torch.zeros(SHAPE)
    matrices[1, 3, 4, 5] = value
    return matrices


def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(embedded_folder())


def hollow() -> BertModel:
    with torch.device("meta"):
        return BertModel(BertConfig(vocab_size=50, **SMALL))


def held(**changes: Any) -> BertModel:
    return BertModel(BertConfig(**{"vocab_size": 50, **SMALL, **changes}))


def broken() -> Any:
    model = bert(BertForSequenceClassification, num_labels=3)
    nn.init.constant_(model.classifier.weight, torch.nan)
    return model


@pytest.fixture
def given(encoder: TextEncoder, reviews: dict[str, pandas.DataFrame]) -> SimpleNamespace:
    return SimpleNamespace(encoder=encoder, reviews=reviews, shallow=encoder.reference.folder)


def enter(given: SimpleNamespace, constants: Any, heads: Any = ((0, 0),)) -> None:
    with papa.replaced(given.encoder, constants, heads):
        pytest.fail("this must be refused")


def ablate(heads: Any, by: Any = "zeros", **options: Any) -> None:
    with papa.ablated(gpt(), heads, by, **options):
        pytest.fail("this must be refused")


def foreign(given: SimpleNamespace) -> Any:
    other = AutoModel.from_pretrained(given.shallow)
    other.embeddings.word_embeddings.weight.data += 0.1
    loaded = papa.load_encoder(other, given.encoder.tokenizer, slots=SLOTS)
    return papa.average(loaded, ["a text"], progress=False)


def longer(given: SimpleNamespace) -> Any:
    loaded = papa.load_encoder(given.shallow, slots=64)
    return papa.average(loaded, ["a text"], progress=False)


def within(given: SimpleNamespace, call: Callable[[], Any]) -> None:
    with papa.replaced(given.encoder, "zeros", [(0, 0)]):
        call()


def measured(given: SimpleNamespace, data: Any = None, task: Any = TASK, **options: Any) -> None:
    data = given.reviews if data is None else data
    papa.measure(given.encoder, data, task, progress=False, **options)


def scored(given: SimpleNamespace, data: Any, by: str, task: Any = None, **options: Any) -> None:
    papa.head_scores(given.encoder, data, task, by=by, progress=False, **options)


TEXTS: list[tuple[Any, str]] = [
    ("a text", "texts is one string: give a list, such as ['a text']"),
    ([], "there is no text: give at least one"),
    (pandas.DataFrame({"text": []}), "has no row"),
    ({"input_ids": [[1]], "attention_mask": [[1]]}, "tokenised inputs (input_ids, attention_mask)"),
    (datasets.Dataset.from_dict({"input_ids": [[1]]}), "tokenised inputs (input_ids) were given"),
    (torch.ones(2, 3, dtype=torch.long), "text 0 is a Tensor, expected a string"),
    (
        datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}),
        "give one of them",
    ),
    (pandas.DataFrame({"body": ["a"]}), "no column 'text' (found: body): name the right one, such"),
    (pandas.DataFrame({"text": ["a", None]}), "row 2 has no 'text'"),
    (pandas.DataFrame({"text": [1, 2]}), "column 'text' holds int64, not text"),
    (pandas.DataFrame({"text": ["a", 2]}), "cannot be read as a table"),
    (3, "texts is a int: give a list of strings"),
    (["a", None], "text 1 is a NoneType, expected a string"),
    ([("a", "b"), "c"], "text 1 is a str, expected a pair of strings"),
]
CONSTANTS: list[tuple[Any, str]] = [
    ("average", "'average' of this call: take one of identity, "),
    ("zeroes", "no constants 'zeroes' of this call (did you mean 'zeros'?): take one of id"),
    ("mean_output", "papa.average gives averages, and constants= of papa.measure takes all kinds"),
    ("relative", "'relative' are made of an average: give average=papa.average("),
    (numpy.zeros((SLOTS, SLOTS)), f"have the shape [32, 32], expected {list(SHAPE)}"),
    (torch.zeros(2, 6, SLOTS, SLOTS), f"have the shape [2, 6, 32, 32], expected {list(SHAPE)}"),
    (torch.zeros(2, 12, 64, 64), "are for 64 slots and the encoder was loaded with 32"),
    (torch.zeros(SHAPE, dtype=torch.long), "are of dtype int64, expected floating point"),
    (numpy.full(SHAPE, None), "are of dtype object, expected floating point"),
    ([1], "constants is a list, expected ConstantMatrices"),
    (None, "constants is a NoneType, expected ConstantMatrices"),
    (odd(float("nan")), "hold nan at [1, 3, 4, 5] (layer, head, from slot, to slot)"),
    (odd(float("inf")).numpy(), "hold inf at [1, 3, 4, 5]"),
]
SCORES: list[tuple[Any, str]] = [
    ([0.9, 0.1], "numbers of shape [2]"),
    (EFFECTS[["score"]], "a data frame with the columns score"),
    (pandas.DataFrame([[0.9, 0.1]]), "a data frame with the columns 0, 1"),
    (EFFECTS[1:], "a data frame of 1 rows, not one for each head from (0, 0) on"),
    (pandas.concat([EFFECTS] * 2), "a data frame of 4 rows, not one for each head"),
    (pandas.concat([EFFECTS, EFFECTS.assign(method="lambda")]), "effect, lambda in one frame"),
    ("lambda", "a str"),
    (None, "numbers of shape []"),
    ([[0.9, 0.1], [0.4]], "a list"),
    ([[0.9, float("nan")]], "numbers that are not finite among them"),
    (EFFECTS.assign(score=float("nan")), "numbers that are not finite among them"),
    ([[]], "numbers of shape [1, 0]"),
]
NO_ENCODER: list[Callable[[Any], Any]] = [
    lambda one: papa.average(one, ["a"]),
    lambda one: papa.features(one, ["a"]),
    lambda one: papa.replaced(one, "zeros", [(0, 0)]).__enter__(),
    lambda one: papa.constants("zeros", one),
    lambda one: papa.head_scores(one, "reviews"),
    lambda one: papa.measure(one, "reviews"),
    lambda one: papa.describe(one, ["a"]),
]
load, few = papa.load_encoder, {"text": ["a film", "no film", "one more", "the last", "or not"]}
NEAREST = papa.Task(label=None, metric="nearest_10", head="own")
Door = Callable[[SimpleNamespace], Any]
DOORS: dict[str, list[tuple[Door, str]]] = {
    "texts": [
        (lambda g, call=call, one=one: call(g.encoder, one, progress=False), sentence)
        for call in (papa.average, papa.features, papa.describe)
        for one, sentence in TEXTS
    ]
    + [
        (
            lambda g: papa.average(g.encoder, tokenizer()(["a", "b"], padding=True)),
            "tokenised inputs (input_ids, token_type_ids, attention_mask)",
        ),
        (lambda g: papa.describe(g.encoder, ["a"], ["similarty"]), "no description 'similarty' (d"),
    ],
    "load_encoder": [
        (lambda g: load("/no/such/folder"), "there is no encoder folder at /no/such/folder"),
        (lambda g: load("embedded/other"), "encoder 'embedded/other' is unknown"),
        (lambda g: load("no-such/encoder"), "no-such/encoder"),
        (lambda g: load(3), "expected the name of an encoder or a model of transformers"),
        (
            lambda g: load(GPT2Model(GPT2Config(n_embd=32, n_layer=1, n_head=2)), tokenizer()),
            "architecture 'gpt2' is not supported: use one of bert",
        ),
        (lambda g: load(held(is_decoder=True), tokenizer()), "is causal (is_decoder)"),
        (lambda g: load(hollow(), tokenizer()), "no weights in memory (embeddings.word_embeddings"),
        (lambda g: load(held()), "no tokenizer is found with the model BertModel: give its own"),
        (lambda g: load(held(), tokenizer()), "gives ids up to 30521 and the model has embeddings"),
        (lambda g: load(EMBEDDED, tokenizer()), "comes with its own tokenizer"),
        (lambda g: load(EMBEDDED, slots=1024), "an even number from 4 to 512"),
        (lambda g: load(EMBEDDED, slots=33), "slots is 33, expected an even number"),
        (lambda g: load(EMBEDDED, slots=32.0), "slots is 32.0, expected"),
        (lambda g: load(EMBEDDED, device="gpu"), "no device 'gpu'"),
        (lambda g: load(held(vocab_size=30522), tokenizer(), device="gpu"), "no device 'gpu'"),
        *(
            (
                lambda g, call=call, one=one: call(one),
                f"encoder is a {type(one).__name__}, expected what papa.load_encoder gives: load",
            )
            for call in NO_ENCODER
            for one in ("low2", None)
        ),
    ],
    "replaced": [
        *((lambda g, one=one: enter(g, one), sentence) for one, sentence in CONSTANTS),
        (lambda g: enter(g, foreign(g)), "averaged over the attention of another encoder than all"),
        (lambda g: enter(g, longer(g)), "for 64 slots and the encoder was loaded with 32"),
        (lambda g: enter(g, "zeros", [(2, 0)]), "there is no head (2, 0): heads are (layer, head)"),
        (lambda g: enter(g, "zeros", [(0, -1)]), "there is no head (0, -1)"),
        (
            lambda g: papa.constants("low_rank", g.encoder, average=torch.ones(SHAPE)),
            "constants 'low_rank' are made of an average: give average=papa.average(",
        ),
        (lambda g: papa.constants("local", g.encoder, window=32), "takes window from 1 to 31 here"),
        (lambda g: papa.constants("local", g.encoder, rank=2), "takes window from 1 to 31 here"),
        (lambda g: papa.constants("zeros", g.encoder, window=1), "takes no parameter here"),
        *(
            (lambda g, call=call: within(g, lambda: call(g)), "leave the block first")
            for call in (
                lambda g: papa.average(g.encoder, ["a"], progress=False),
                lambda g: papa.describe(g.encoder, ["a"], progress=False),
                lambda g: measured(g),
                lambda g: scored(g, g.reviews, "lambda", TASK),
            )
        ),
    ],
    "measure": [
        (lambda g: measured(g, "revews", None), "there is no task 'revews' (known: reviews"),
        (lambda g: measured(g, "reviews"), "is described already"),
        (lambda g: measured(g, {"train": g.reviews["train"]}), "found train: give {'train': …, 'v"),
        (lambda g: measured(g, columns(g.reviews["train"])), "found review, verdict: give {'train"),
        (lambda g: measured(g, task=None), "the train split has no column 'text' (found: "),
        (
            lambda g: measured(g, {split: one[["review"]] for split, one in g.reviews.items()}),
            "the train split has no column 'verdict' (found: review): name the",
        ),
        (lambda g: measured(g, {**g.reviews, "validation": ["a"]}), "the validation split is a li"),
        (
            lambda g: measured(
                g,
                {
                    **g.reviews,
                    "validation": g.reviews["train"].replace({"verdict": {"positive": "good"}}),
                },
            ),
            "the validation split: row",
        ),
        *(
            (lambda g, options=options: measured(g, **options), sentence)
            for options, sentence in (
                ({"orders": ["lamda"]}, "found 'lamda' (did you mean 'lambda'?)"),
                ({"orders": "lambda"}, "'orders': Input should be a valid tuple, found 'lambda'"),
                ({"orders": EFFECTS}, "found scores of 1 layers of 2 heads, expected 2 layers of"),
                ({"fractions": [2]}, "'fractions.0'"),
                ({"fractions": 0.5}, "'fractions': Input should be a valid tuple, found 0.5"),
                ({"fractions": "1"}, "'fractions': Input should be a valid tuple, found '1'"),
                ({"seeds": []}, "'seeds'"),
                ({"seeds": 3}, "'seeds': Input should be a valid tuple, found 3"),
                ({"ranking_seeds": 3}, "'ranking.seeds': Input should be a valid tuple, f"),
                ({"constants": []}, "constants is an empty list, expected a list of kinds or of m"),
                ({"constants": torch.zeros(SHAPE)}, "constants is a Tensor, expected a list of ki"),
                ({"constants": [3]}, "constants is a int, expected ConstantMatrices, a tensor"),
                ({"constants": ["own"]}, "found 'own'"),
            )
        ),
        (
            lambda g: measured(g, {"train": few, "validation": few}, NEAREST),
            "task 'data' has 5 validation rows, and nearest_10 takes 21 to 2,000 sentences",
        ),
    ],
    "head_scores": [
        *((lambda g, one=one: papa.constant_heads(one, 0.5), said) for one, said in SCORES),
        (lambda g: papa.constant_heads(EFFECTS, 50), "fraction is 50, expected the share"),
        (lambda g: papa.constant_heads(EFFECTS, count=3), "count is 3, expected how many of the 2"),
        (lambda g: papa.constant_heads(EFFECTS), "give fraction, the share of heads that"),
        (lambda g: scored(g, {}, "shaply"), "no head score 'shaply' for this model (did you mean"),
        (
            lambda g: scored(g, g.reviews, "shapley", TASK, evaluations=93),
            "evaluations is 93, and Shapley values of 24 heads take 94 at least: give as many",
        ),
        (
            lambda g: scored(g, g.reviews, "greedy", TASK, evaluations=23),
            "evaluations is 23, and the steps of a greedy order of 24 heads take 24 at least",
        ),
        (
            lambda g: scored(g, g.reviews, "gates", replace(TASK, head="own")),
            "L0 gates are trained with a probe, and task data has head: own: take effect",
        ),
        (lambda g: scored(g, g.reviews, "lambda", TASK, seeds=3), "be a valid tuple, found 3"),
        (lambda g: scored(g, g.reviews, "lambda", TASK, constants="zeroes"), "no constants"),
        (lambda g: scored(g, g.reviews, "lambda", TASK, score=len), "of a model that you hold"),
        (lambda g: hand(gpt(), by="gradient"), "'gradient' for this model: give one of lambda, ef"),
        (lambda g: hand(gpt(), task=TASK), "task and rows are of what papa.load_encoder gives"),
        (lambda g: hand(gpt(), by="lambda", epochs=0), "epochs is 0, learning_rate is"),
        (lambda g: hand(gpt(), by="lambda", score=len), "score is for by='effect'"),
        (
            lambda g: hand(gpt(), [{"input_ids": torch.tensor([[3]])}], by="lambda"),
            "a batch of data holds no token that counts",
        ),
        (lambda g: hand(gpt().train(), by="lambda"), "in train mode"),
        (lambda g: hand(gpt().train()), "in train mode"),
        (lambda g: hand(gpt(), []), "holds no batch"),
        (lambda g: hand(gpt(), iter(["a text"])), "data holds a str, expected what the model is"),
        (
            lambda g: hand(gpt(), constants="mean", made_from=iter(["a text"])),
            "data holds a str, expected what the model is called with",
        ),
        (lambda g: hand(gpt(), constants="zeroes"), "there is no substitute 'zeroes'"),
        (lambda g: hand(broken()), "answers with head (0, 0) replaced holds NaN"),
    ],
    "ablated": [
        (lambda g: ablate([(0, 9)]), "there is no head (0, 9)"),
        (lambda g: ablate([(True, 0)]), "there is no head (True, 0)"),
        (lambda g: ablate(3), "heads is 3: give (layer, head) pairs"),
        (lambda g: ablate(torch.ones(3, 4)), "the mask of heads has the shape (3, 4), expected"),
        (
            lambda g: ablate(torch.full((2, 4), 0.5)),
            "more than 0 and 1: write 0 where to replace",
        ),
        (lambda g: ablate([(0, 0)], "average"), 'by="average" is made from text: give data='),
        (lambda g: ablate([(0, 0)], {"kind": "local"}), "there is no substitute {'kind': 'local'}"),
        (
            lambda g: ablate([(0, 0)], {"kind": "streaming", "window": 3}),
            "by='streaming' takes sinks, recent, found window",
        ),
        (
            lambda g: ablate([(0, 0)], {"kind": "streaming", "recent": 0}),
            "recent is 0, expected 0 or more and 1 or more",
        ),
        (lambda g: ablate([(0, 0)], torch.ones(2, 3, 9, 9)), "have the shape (2, 3, 9, 9), expect"),
    ],
    "fidelity": [
        (lambda g: kept(bert(BertModel).train(), [BATCH]), "in train mode"),
        (lambda g: kept(bert(BertModel), iter(())), "holds no batch"),
        (
            lambda g: kept(bert(BertModel), [{"input_ids": BATCH["input_ids"][:3]}]),
            "holds 3 texts, expected 4 or more",
        ),
        (
            lambda g: kept(bert(BertForSequenceClassification, num_labels=1), [BATCH]),
            "one number and no classes",
        ),
        (
            lambda g: kept(bert(BertForMaskedLM), [{**BATCH, "labels": BATCH["input_ids"]}, BATCH]),
            "labels with every batch",
        ),
        (
            lambda g: kept(gpt(), [{"input_ids": BATCH["input_ids"][:, :1]}]),
            "no token that counts",
        ),
    ],
}


def hand(model: Any, data: Any = None, task: Any = None, by: str = "effect", **more: Any) -> None:
    more = {"constants": "zeros", "progress": False, **more}
    papa.head_scores(model, texts() if data is None else data, task, by=by, **more)


def kept(model: Any, data: Any) -> None:
    papa.fidelity(model, [], data=data)


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_wrong_call_is_one_sentence(
    given: SimpleNamespace, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for call, sentence in DOORS[door]:
        with pytest.raises(papa.PapaError, match=re.escape(sentence)) as refused:
            call(given)
        assert "\n" not in str(refused.value)
    assert not given.encoder.encoder.dispatch.rules, "the encoder is as it was"
