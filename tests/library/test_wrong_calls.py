"""The likeliest wrong calls: each is refused by a PapaError that names what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, PreTrainedModel

import papa
from papa.library.encoder import Encoder
from papa.models.reference import EMBEDDED
from tests.library.conftest import SLOTS, Reviews
from tests.native.models import bert, gpt, texts

pytestmark = pytest.mark.unchecked

SHAPE = (2, 12, SLOTS, SLOTS)
TASK = papa.Task(text="review", label="verdict")
BATCH = texts()[0]
LABELLED = {**BATCH, "labels": BATCH["input_ids"]}
ONE_TOKEN = {"input_ids": BATCH["input_ids"][:, :1]}
EFFECTS = pandas.DataFrame({"layer": [0, 0], "head": [0, 1], "method": "effect", "score": [1, 2.0]})
NOT_FINITE = torch.zeros(SHAPE)
NOT_FINITE[1, 3, 4, 5] = float("nan")
NUMBERS = bert("ForSequenceClassification", labels=2, problem_type="regression")


def classifier(weight: float) -> PreTrainedModel:
    model = bert("ForSequenceClassification", labels=3)
    torch.nn.init.constant_(model.classifier.weight, weight)
    return model


def refusal(call: Callable[[], object]) -> str:
    """The message of the one-line error that a call raises."""
    with pytest.raises(papa.PapaError) as refused:
        call()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a text", "['a text']"),
        ([], "no rows"),
        (None, "None"),
        ([("a", "b"), "c"], "str at index 1"),
        (["a", ("b", "c", "d")], "str, str, str at index 1"),
        ([["two", "words"]], "list at index 0"),
        ([1, 2], "int at index 0"),
        ({"train": ["a"], "validation": ["b"]}, "train"),
        ({"body": ["a"]}, "'text' (found: body)"),
        (pandas.DataFrame({"text": ["a", 2]}), "table"),
    ],
)
def test_data_that_are_no_texts(encoder: Encoder, data: object, expected: str) -> None:
    assert expected in refusal(lambda: papa.average(encoder, data, progress=False))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (partial(papa.load_encoder, "/no/such/folder"), "/no/such/folder"),
        (partial(papa.load_encoder, torch.nn.Linear(2, 2)), "Linear"),
        (partial(papa.load_encoder, bert()), "tokenizer"),
        (partial(papa.load_encoder, gpt(), None), "papa.head_scores"),
        (partial(papa.measure, "gpt2", ["a"], tokenizer=1), "papa.load_encoder('gpt2')"),
        (partial(papa.head_scores, "gpt2", ["a"], tokenizer=1), "papa.load_encoder('gpt2')"),
        (partial(papa.average, bert(), ["a"]), "papa.load_encoder(model, tokenizer)"),
        (partial(papa.load_encoder, EMBEDDED, slots=33), "slots is 33"),
        (partial(papa.constant_heads, [0.9, 0.1], keep=0.5), "[2]"),
        (partial(papa.constant_heads, [[0.9, float("nan")]], keep=0.5), "finite"),
        (partial(papa.constant_heads, None, keep=0.5), "NoneType"),
        (partial(papa.constant_heads, EFFECTS.assign(score=["a", "b"]), keep=0.5), "scores"),
        (partial(papa.constant_heads, EFFECTS, keep=50), "keep"),
        (partial(papa.constant_heads, EFFECTS, keep=None), "keep=None"),
        (partial(papa.constant_heads, EFFECTS, keep=[0.5]), "keep=[0.5]"),
        (partial(papa.constant_heads, EFFECTS, keep="0.5"), "keep='0.5'"),
        (partial(papa.load_encoder, EMBEDDED.partition("/")[2]), EMBEDDED),
    ],
)
def test_what_is_no_encoder_or_gives_no_heads(
    call: Callable[[], object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert expected in refusal(call)


@pytest.mark.parametrize(
    ("substitute", "heads", "expected"),
    [
        ("toeplits", [(0, 0)], "'toeplits'"),
        ("relative", [(0, 0)], "average=papa.average("),
        (numpy.zeros((32, 32)), [(0, 0)], "[32, 32]"),
        (torch.zeros(SHAPE, dtype=torch.long), [(0, 0)], "torch.int64"),
        (NOT_FINITE, [(0, 0)], f"finite floating-point numbers {list(SHAPE)}"),
        ("zeros", [(2, 0)], "no head (2, 0)"),
        ("zeros", "all", "'all'"),
    ],
)
def test_blocks_that_are_not_entered(
    encoder: Encoder, substitute: object, heads: list[tuple[int, int]], expected: str
) -> None:
    block = papa.replaced(encoder, heads, substitute=substitute)
    assert expected in refusal(block.__enter__)
    assert not encoder.encoder.dispatch.rules, "the encoder is as it was"


@pytest.mark.parametrize(("layer", "head"), [(9, 1), (0, 12), (-1, None), (0, -1)])
def test_plots_of_heads_that_do_not_exist(encoder: Encoder, layer: int, head: int | None) -> None:
    matrices = papa.constants(encoder, "zeros")
    assert f"({layer}, {head or 0})" in refusal(lambda: matrices.plot(layer, head))


def test_the_average_of_another_encoder(encoder: Encoder) -> None:
    other_model = AutoModel.from_pretrained(encoder.path)
    other_model.embeddings.word_embeddings.weight.data += 0.1
    other_encoder = papa.load_encoder(other_model, encoder.tokenizer, slots=SLOTS)
    average = papa.average(other_encoder, ["a text"], progress=False)
    assert "encoder" in refusal(papa.replaced(encoder, [(0, 0)], substitute=average).__enter__)


def test_an_average_inside_a_block(encoder: Encoder) -> None:
    with papa.replaced(encoder, [(0, 0)], substitute="zeros"):
        assert "papa.replaced" in refusal(lambda: papa.average(encoder, ["a"], progress=False))


@pytest.mark.parametrize(
    ("data", "task", "expected"),
    [
        ("revews", None, "revews"),
        ("reviews", TASK, "task"),
        ({"train": ["a"]}, TASK, "'train'"),
        (pandas.DataFrame({"text": ["a"]}), None, "one DataFrame"),
        ({"train": {"body": ["a"]}, "validation": {"body": ["b"]}}, None, "no column 'text'"),
    ],
)
def test_data_that_cannot_be_measured(
    encoder: Encoder, data: object, task: papa.Task | None, expected: str
) -> None:
    assert expected in refusal(lambda: papa.measure(encoder, data, task=task, progress=False))


def test_classes_that_the_train_split_lacks(encoder: Encoder, reviews: Reviews) -> None:
    renamed = reviews["train"].replace({"positive": "good"})
    data = {"train": reviews["train"], "validation": renamed}
    assert "validation" in refusal(lambda: papa.measure(encoder, data, task=TASK, progress=False))


Call = Callable[..., object]


changed = partial(replace, TASK)


def measured(make_task: Callable[[], papa.Task]) -> Call:
    """A measurement by another task, which is checked once it is made."""
    return lambda encoder, data, task, progress: papa.measure(
        encoder, data, task=make_task(), keep=[1], progress=progress
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (measured(partial(changed, probe=3)), "probe is a int"),
        (measured(partial(changed, probe=LogisticRegression(), head="native")), "leave out head"),
        (measured(partial(changed, score=len)), 'head="native"'),
        (measured(partial(changed, metric=len, label=None)), "set label"),
        (measured(partial(changed, metric=lambda *_: 1 / 0, epochs=1)), "division by zero"),
        (measured(partial(changed, metric=lambda *_: torch.nan, epochs=1)), "nan"),
        (partial(papa.measure, orders=["lamda"]), "'lamda' (did you mean 'lambda'?)"),
        (partial(papa.measure, orders=EFFECTS), "1 layers of 2 heads"),
        (partial(papa.measure, orders=[[(0, 0), (2, 0)]]), "(2, 0)"),
        (partial(papa.measure, keep=[2]), "'keep.0'"),
        (partial(papa.measure, probe_seeds=3), "'probe_seeds'"),
        (partial(papa.measure, substitutes=[]), "substitutes is list"),
        (partial(papa.measure, substitutes=NOT_FINITE), "substitutes is Tensor"),
        (partial(papa.head_scores, method="shaply"), "'shaply'"),
        (partial(papa.head_scores, substitute="zeroes"), "'zeroes'"),
        (lambda encoder, data, **_: papa.measure(encoder, data, task="reviews"), "'reviews'"),
        (lambda encoder, data, **_: papa.head_scores(encoder, data, task={"text": "a"}), "'text'"),
        (
            lambda encoder, data, **_: papa.describe(encoder, ["a"], descriptions="norms"),
            "'norms'",
        ),
        (
            lambda encoder, data, **_: papa.export(
                encoder, encoder.tokenizer, heads=[(0, 0)], substitute="zeros", folder="never"
            ),
            "Encoder",
        ),
    ],
)
def test_tasks_or_designs_that_cannot_be_measured(
    encoder: Encoder, reviews: Reviews, call: Call, expected: str
) -> None:
    assert expected in refusal(lambda: call(encoder, reviews, task=TASK, progress=False))


head_scores = partial(papa.head_scores, progress=False)
fidelity = partial(papa.fidelity, heads=[], substitute="zeros")
measure = partial(papa.measure, progress=False)


@pytest.mark.parametrize(
    ("call", "model", "data", "expected"),
    [
        (partial(head_scores, method="self_lambda"), gpt(), texts(), "'self_lambda'"),
        (partial(head_scores, task=papa.Task(metric="f1")), gpt(), texts(), "metric"),
        (partial(head_scores, score=lambda _: 1), gpt(), texts(), "metric= of papa.Task"),
        (measure, gpt(), {"review": ["a"]}, "papa.Task(text='review')"),
        (head_scores, gpt(), {"review": ["a"]}, "papa.Task(text='review')"),
        (fidelity, "gpt2", ["a"], "papa.load_encoder"),
        (partial(fidelity, heads=(0, 1)), gpt(), texts(), "[(0, 1)]"),
        (partial(fidelity, heads=EFFECTS), gpt(), texts(), "papa.constant_heads"),
        (
            partial(papa.joint_effects, head_sets=[(0, 0), (0, 1)]),
            gpt(),
            texts(),
            "[[(0, 0), (0, 1)]]",
        ),
        (partial(head_scores, substitute=["zeros"]), gpt(), texts(), "['zeros']"),
        (head_scores, gpt().train(), texts(), "train mode"),
        (head_scores, gpt(), ["a text"], "tokenizer"),
        (partial(papa.search_heads, scores=EFFECTS, max_effect="1%"), gpt(), texts(), "'1%'"),
        (partial(papa.search_heads, scores=EFFECTS, max_effect=None), gpt(), texts(), "max_effect"),
        (head_scores, gpt(), None, 'return_tensors="pt"'),
        (head_scores, gpt(), [{"input_ids": [[1, 2]]}], 'return_tensors="pt"'),
        (head_scores, gpt(), BATCH["input_ids"], "Tensor at index 0"),
        (partial(head_scores, method="effect"), classifier(torch.nan), texts(), "NaN"),
        (fidelity, bert(), [{name: values[:3] for name, values in BATCH.items()}], "3 texts"),
        (fidelity, NUMBERS, [BATCH], "logits"),
        (fidelity, bert("ForMaskedLM"), [LABELLED, BATCH], "labels"),
        (fidelity, gpt(), [ONE_TOKEN], "token"),
        (partial(measure, score="accuracy"), classifier(0.0), texts(), "needs labels"),
        (partial(head_scores, score="accuracy"), classifier(0.0), texts(), "needs labels"),
        (partial(head_scores, method="efect"), gpt(), texts(), "'effect'"),
        (partial(measure, keep=["half"]), gpt(), texts(), "keep"),
    ],
)
def test_models_in_memory_that_have_no_numbers(
    call: Call, model: PreTrainedModel, data: object, expected: str
) -> None:
    assert expected in refusal(lambda: call(model, data))


def test_a_frame_of_scores_is_one_order() -> None:
    scores = pandas.DataFrame(numpy.ndindex(2, 4), columns=["layer", "head"]).assign(score=1.0)
    measurement = papa.measure(gpt(), texts(), orders=scores, keep=[0.5], progress=False)
    assert measurement.summary["order"].tolist() == ["scores:custom"]


@pytest.mark.parametrize("method", ["effect", "distance"])
def test_scores_of_one_text_warn_of_their_certainty(method: str) -> None:
    one = [{name: values[:1] for name, values in BATCH.items()}]
    with pytest.warns(UserWarning, match="one text"):
        scores = papa.head_scores(gpt(), one, method=method, progress=False)
    assert scores["low"].isna().all()
