"""The measurement of a model in memory has the numbers of a plain loop."""

import gc
import re
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers as tf
from sentence_transformers.sentence_transformer.modules import Pooling
from sklearn.metrics import balanced_accuracy_score
from transformers.utils import ModelOutput

import papa
from papa.errors import EncoderError
from papa.native.passes import NativeHead
from tests.make import inputs_of, outputs_of, random_model
from tests.native.models import EVERY_HEAD, bert, gpt, labelled, splits, texts
from tests.probes.sentences import sentence_encoder

VERBS = ("drags", "is fun", "ends")
SENTENCES = [f"{first} film that {verb}" for first in ("A", "My") for verb in VERBS]


quick_measure = partial(papa.measure, orders=["first_to_last"], keep=[1, 0], progress=False)
"""With no and with all heads constant."""
SHORT = {"input_ids": texts()[0]["input_ids"][:, :4]}
BATCH = texts()[0]


def mean(measurement: papa.Measurement, fraction: float) -> float:
    summary = measurement.summary
    return float(summary.loc[summary["fraction"] == fraction, "mean"].iloc[0])


@pytest.mark.parametrize(
    ("model", "score", "metric", "measure"),
    [
        (gpt(), None, "negative_log_perplexity", "loss_after"),
        (gpt(), "agreement", "agreement", "agreement"),
        (bert(), None, "cosine", "cosine"),
        (bert(), "nearest_1", "nearest_1", "nearest_1"),
        (bert("ForSequenceClassification", labels=3), None, "agreement", "agreement"),
        (bert("ForTokenClassification", labels=5), None, "agreement", "agreement"),
        (bert("ForMaskedLM"), None, "agreement", "agreement"),
    ],
)
@pytest.mark.parametrize("substitute", ["zeros", "average"])
def test_each_kind_of_model_has_the_numbers_of_fidelity(
    model: tf.PreTrainedModel, score: str | None, metric: str, measure: str, substitute: str
) -> None:
    data = splits(texts())
    measurement = quick_measure(model, data, score=score, substitutes=[substitute])
    assert set(measurement.summary["metric"]) == {metric}
    expected = papa.fidelity(
        model,
        data["validation"],
        heads=EVERY_HEAD,
        substitute=substitute,
        substitute_data=data["train"],
    ).loc[measure]
    sign = -1 if measure.startswith("loss") else 1
    assert mean(measurement, 0) == pytest.approx(sign * expected["value"], abs=1e-5)
    changed = measurement.summary[measurement.summary["fraction"] == 0].iloc[0]
    # A study allows for what no example shows, where a loss has no scale of its own.
    low, high = sorted(sign * expected[["low", "high"]])
    assert low - 0.2 < changed["low"] < low + 1e-5
    assert high - 1e-5 < changed["high"] < high + 0.2
    assert mean(measurement, 1) > mean(measurement, 0), "negative control"


def test_images_have_a_curve_with_intervals_within_range() -> None:
    model = random_model("vit")
    data = [inputs_of("vit", seed=seed, batch=6) for seed in range(4)]
    measured = papa.measure(
        model, data, orders=["random", "effect"], keep=[1, 0.5, 0], progress=False
    )
    assert set(measured.head_scores["method"]) == {"effect"}
    assert len(measured.results) == 2 * 3 * 3
    assert measured.summary["high"].max() <= 1
    assert measured.heads()["heads"].isna().sum() == 1, "random heads differ by seed"


def test_heads_of_a_share_of_many_decimals_are_listed() -> None:
    model = random_model("vit")
    data = [inputs_of("vit", seed=seed, batch=6) for seed in range(4)]
    measured = papa.measure(
        model, data, orders=["first_to_last"], keep=[1, 2 / 3, 0.5], progress=False
    )
    heads = measured.heads()
    assert [len(listed) for listed in heads["heads"]] == heads["constant_heads"].tolist()


def test_custom_scores_of_labelled_data() -> None:
    model = bert("ForSequenceClassification", labels=3)
    data = splits(labelled())
    (batch,) = data["validation"]
    outputs = outputs_of(model, batch)
    right = (outputs.logits.argmax(1) == batch["labels"]).double()

    def certainty(outputs: ModelOutput, _: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return outputs.logits.softmax(1).amax(1)

    names = ("accuracy", "negative_log_perplexity", certainty)
    scored = {score: quick_measure(model, data, score=score) for score in names}
    assert mean(scored["accuracy"], 1) == pytest.approx(right.mean().item())
    assert mean(scored["negative_log_perplexity"], 1) == pytest.approx(
        -outputs.loss.item(), abs=1e-5
    )
    expected = certainty(outputs, batch).mean().item()
    assert mean(scored[certainty], 1) == pytest.approx(expected, abs=1e-5)
    batch["labels"][::2] = -100
    counted = batch["labels"] != -100
    some = {score: mean(quick_measure(model, data, score=score), 1) for score in names[:2]}
    assert some["accuracy"] == pytest.approx(right[counted].mean().item())
    loss = torch.nn.functional.cross_entropy(outputs.logits, batch["labels"]).item()
    assert some["negative_log_perplexity"] == pytest.approx(-loss, abs=1e-5)


def test_the_metric_of_a_task_is_the_score() -> None:
    model = bert("ForSequenceClassification", labels=3)
    data = splits(labelled())
    by_task = quick_measure(model, data, task=papa.Task(metric="accuracy")).summary
    by_score = quick_measure(model, data, score="accuracy").summary
    assert set(by_task["metric"]) == {"accuracy"}
    assert by_task["mean"].tolist() == by_score["mean"].tolist()
    usual = quick_measure(model, data, task=papa.Task()).summary
    assert set(usual["metric"]) == {"agreement"}, "negative control: nothing was asked for"


def test_labels_give_the_baseline_of_one_answer() -> None:
    model = bert("ForSequenceClassification", labels=3)
    data = splits(labelled())
    counts = data["validation"][0]["labels"].bincount(minlength=3).double()
    shares = counts / counts.sum()
    entropy = -(shares * shares.clamp(min=1e-9).log()).sum().item()
    most = shares.max().item()
    for score, expected in (("accuracy", most), ("negative_log_perplexity", -entropy)):
        summary = quick_measure(model, data, score=score).summary
        assert summary["always_one_answer"].tolist() == pytest.approx([expected] * 2)
        assert summary["beats_baseline"].notna().all()
    unlabelled = quick_measure(model, data, score="agreement").summary
    assert unlabelled[["always_one_answer", "beats_baseline"]].isna().all(axis=None)


@pytest.mark.parametrize("score", ["agreement", "accuracy"])
def test_heads_of_a_model_that_answers_one_class_are_not_told(score: str) -> None:
    model = bert("ForSequenceClassification", labels=3)
    model.classifier.bias.data = torch.tensor([0.0, 50.0, 0.0])
    measurement = quick_measure(model, splits(labelled()), score=score)
    heads = measurement.heads()
    assert [*heads["verdict"]] == ["undecided"]
    assert heads["reason"].all()
    assert heads["reason"].iloc[0] in measurement.answers[0]


def test_a_model_in_half_precision_is_itself_where_no_head_is_constant() -> None:
    model = bert("ForTokenClassification", labels=5).bfloat16()
    measurement = quick_measure(model, splits(texts()), substitutes=["zeros"])
    assert mean(measurement, 1) == 1 > mean(measurement, 0)
    with torch.no_grad():
        embeds = bert().half()
        embeds.encoder.layer[-1].output.LayerNorm.bias[0] = 1.2e4
    assert 0.9 < mean(quick_measure(embeds, splits(texts())), 1) <= 1, "sums do not overflow"


def test_cells_have_the_heads_of_their_orders(shallow: str) -> None:
    measurement = papa.measure(
        tf.AutoModel.from_pretrained(shallow),
        SENTENCES * 2,
        tokenizer=tf.AutoTokenizer.from_pretrained(shallow),
        score="similarities",
        substitutes=["average", {"kind": "streaming", "sinks": 1, "recent": 2}],
        orders=["lambda", [(1, 3)], "reversed:last_to_first"],
        keep=[1, 23 / 24],
        progress=False,
    )
    assert set(measurement.summary["constants"]) == {"average", "streaming:1:2"}
    heads = {
        cell.order: heads_of_cell
        for cell, heads_of_cell in measurement.constant_heads.items()
        if heads_of_cell and cell.constants == "average"
    }
    (first,) = papa.constant_heads(measurement.head_scores, count=1)
    expected = {"scores:custom": ((1, 3),), "reversed:last_to_first": ((0, 11),)}
    assert heads == {**expected, "lambda": (first,)}


def test_second_texts_of_a_table_are_read(shallow: str) -> None:
    torch.manual_seed(0)
    model = tf.AutoModelForSequenceClassification.from_pretrained(shallow).eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(shallow)
    table = {"text": SENTENCES, "text_pair": SENTENCES[::-1], "label": [0, 1] * 3}
    without_pairs = {name: column for name, column in table.items() if name != "text_pair"}

    def losses(data: object, task: papa.Task | None = None) -> list[float]:
        splits = {"train": data, "validation": data}
        score = "negative_log_perplexity"
        measurement = quick_measure(
            model, splits, score=score, substitutes=["zeros"], task=task, tokenizer=tokenizer
        )
        return measurement.summary["mean"].tolist()

    assert losses(table) == losses(table, papa.Task(text_pair="text_pair"))
    renamed = {f"my_{name}": column for name, column in table.items()}
    task = papa.Task(text="my_text", text_pair="my_text_pair", label="my_label")
    by_name, by_task = (
        papa.head_scores(
            model, data, task=task, score="accuracy", rows=6, tokenizer=tokenizer, progress=False
        )["score"].tolist()
        for data, task in ((table, None), (renamed, task))
    )
    assert by_name == by_task
    assert losses(table) != losses(without_pairs)


@pytest.mark.parametrize(
    "call", [papa.measure, papa.head_scores, partial(papa.fidelity, heads=[(0, 0)])]
)
def test_other_embeddings_are_refused(tmp_path: Path, call: Callable[..., object]) -> None:
    folder = sentence_encoder(tmp_path, lambda: Pooling(32, "cls"))
    model = tf.AutoModel.from_pretrained(folder).eval()
    with pytest.raises(EncoderError, match=rf"{re.escape(str(folder))}.*cls"):
        call(model, SENTENCES, tokenizer=tf.AutoTokenizer.from_pretrained(folder))


def test_a_model_of_embeddings_is_not_kept_in_memory() -> None:
    model = random_model("bert")
    batch = inputs_of("bert")
    papa.fidelity(model, [{name: value[:1] for name, value in batch.items()}] * 4, heads=[(0, 0)])
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def first_logit(outputs: ModelOutput, _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return outputs.logits[:, 0]


def first_logits(outputs: ModelOutput, _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return outputs.logits[:, 0].flatten()


@pytest.mark.parametrize(
    ("call", "data", "expected"),
    [
        (papa.measure, {"input_ids": BATCH["input_ids"][:1]}, "one text"),
        (partial(papa.measure, score="accuracy"), [BATCH], "agreement"),
        (partial(papa.measure, task=papa.Task(metric=balanced_accuracy_score)), [BATCH], "metric"),
        (partial(papa.measure, train_rows=3), [BATCH], "train_rows"),
        (partial(papa.measure, orders=["self_lambda"]), [BATCH], "'self_lambda'"),
        (partial(papa.measure, keep=[]), [BATCH], "keep is []"),
        (partial(papa.measure, score=first_logits), [BATCH], "each"),
    ],
)
def test_what_does_not_fit_is_refused_before_heads_are_scored(
    call: Callable[..., object], data: object, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_heads = "papa.library.in_memory.score_native_heads"
    monkeypatch.setattr(score_heads, lambda *_, **__: pytest.fail("late"))
    with pytest.raises(papa.PapaError, match=re.escape(expected)):
        call(gpt(), data, progress=False)


@pytest.mark.parametrize(
    ("substitutes", "expected"),
    [
        (["zeros", "average"], "9 tokens"),
        (["relative", torch.ones(2, 4, 8, 8)], "8 slots"),
        (["relative", "zeroes"], "'zeroes'"),
    ],
)
def test_substitutes_that_do_not_fit_are_refused_before_they_are_computed(
    substitutes: list[object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("all_answers", "observe"):
        monkeypatch.setattr(NativeHead, method, lambda *_, **__: pytest.fail("late"))
    data = {"train": [SHORT], "validation": [BATCH]}
    with pytest.raises(papa.PapaError, match=re.escape(expected)):
        quick_measure(gpt(), data, substitutes=substitutes)


def test_orders_that_no_function_as_score_gives_name_one_that_it_does() -> None:
    model = bert("ForSequenceClassification", problem_type="regression")
    call = partial(quick_measure, model, [BATCH], score=first_logit)
    assert call(orders=["effect"]).summary["order"].unique().tolist() == ["effect"]
    with pytest.raises(papa.PapaError, match="'effect'"):
        call(orders=["lambda"])


def test_a_label_that_the_head_does_not_have_is_refused(shallow: str) -> None:
    model = bert("ForSequenceClassification", labels=3)
    data = {"text": SENTENCES, "label": [5, *range(5)]}
    with pytest.raises(papa.PapaError, match="label 5"):
        papa.measure(model, data, tokenizer=tf.AutoTokenizer.from_pretrained(shallow))
