"""The measurement of a model in memory: of every kind, the numbers of a plain loop, refused
before λ is trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
)

import papa
from papa.errors import EncoderError
from tests.library.test_fidelity import EVERY_HEAD, bert, gpt, texts
from tests.make import inputs_of, random_model
from tests.probes.sentences import mean as mean_pooling
from tests.probes.sentences import sentence_encoder

QUICK: dict[str, object] = {"orders": ["first_to_last"], "keep": [1, 0], "progress": False}
VERBS = ("drags", "is fun", "ends")
SENTENCES = [f"{first} film that {verb}" for first in ("A", "My") for verb in VERBS]


def halves() -> dict[str, object]:
    return dict(zip(("train", "validation"), ([batch] for batch in texts()), strict=True))


def mean(measurement: papa.Measurement, fraction: float) -> float:
    summary = measurement.summary
    return float(summary.loc[summary["fraction"] == fraction, "mean"].iloc[0])


def labelled(data: Any) -> Any:
    return {
        name: [{**batch, "labels": batch["input_ids"][:, 0] % 3} for batch in batches]
        for name, batches in data.items()
    }


@pytest.mark.parametrize(
    ("model", "score", "metric", "measure"),
    [
        (gpt(), None, "negative_log_perplexity", "loss_after"),
        (gpt(), "agreement", "agreement", "agreement"),
        (bert(), None, "cosine", "cosine"),
        (bert(), "nearest_1", "nearest_1", "nearest_1"),
        (bert("ForSequenceClassification", num_labels=3), None, "agreement", "agreement"),
        (bert("ForTokenClassification", num_labels=5), None, "agreement", "agreement"),
        (bert("ForMaskedLM"), None, "agreement", "agreement"),
    ],
)
@pytest.mark.parametrize("substitute", ["zeros", "average"])
def test_each_kind_of_model_has_the_numbers_of_fidelity(
    model: Any, score: str | None, metric: str, measure: str, substitute: str
) -> None:
    data = halves()
    measurement = papa.measure(model, data, score=score, substitutes=[substitute], **QUICK)
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
    assert "with every head input-dependent" in measurement.answers[0]


def test_images_have_a_curve_with_intervals_within_range() -> None:
    model = random_model("vit")
    data = [inputs_of("vit", seed=seed, batch=6) for seed in range(4)]
    measurement = papa.measure(
        model, data, orders=["random", "effect"], keep=[1, 0.5, 0], progress=False
    )
    assert set(measurement.head_scores["method"]) == {"effect"}
    assert len(measurement.results) == 2 * 3 * 3
    assert measurement.summary["high"].max() <= 1
    assert measurement.plot().svg().startswith("<svg")
    assert measurement.heads()["heads"].isna().sum() == 1, "random heads differ by seed"


def test_custom_scores_of_labelled_data() -> None:
    model = bert("ForSequenceClassification", num_labels=3)
    data = labelled(halves())
    with torch.inference_mode():
        (batch,) = data["validation"]
        outputs = model(**batch)
    right = (outputs.logits.argmax(1) == batch["labels"]).double()

    def certainty(outputs: Any, batch: Any) -> torch.Tensor:
        return outputs.logits.softmax(1).amax(1)

    measurements = {
        score: papa.measure(model, data, score=score, **QUICK)
        for score in ("accuracy", "negative_log_perplexity", certainty)
    }
    assert mean(measurements["accuracy"], 1) == pytest.approx(right.mean().item())
    assert mean(measurements["negative_log_perplexity"], 1) == pytest.approx(
        -outputs.loss.item(), abs=1e-5
    )
    expected = certainty(outputs, batch).mean().item()
    assert mean(measurements[certainty], 1) == pytest.approx(expected, abs=1e-5)
    assert "certainty" in measurements[certainty].answers[0]
    assert measurements["accuracy"].summary["high"].max() <= 1
    batch["labels"][::2] = -100
    counted = batch["labels"] != -100
    some = {
        score: mean(papa.measure(model, {**data, "validation": [batch]}, score=score, **QUICK), 1)
        for score in ("accuracy", "negative_log_perplexity")
    }
    assert some["accuracy"] == pytest.approx(right[counted].mean().item())
    loss = torch.nn.functional.cross_entropy(outputs.logits, batch["labels"]).item()
    assert some["negative_log_perplexity"] == pytest.approx(-loss, abs=1e-5)


def test_labels_give_the_baseline_of_one_answer() -> None:
    model = bert("ForSequenceClassification", num_labels=3)
    data = labelled(halves())
    counts = data["validation"][0]["labels"].bincount(minlength=3).double()
    shares = counts / counts.sum()
    entropy = -(shares * shares.clamp(min=1e-9).log()).sum().item()
    for score, expected in (
        ("accuracy", shares.max().item()),
        ("negative_log_perplexity", -entropy),
    ):
        summary = papa.measure(model, data, score=score, **QUICK).summary
        assert summary["always_one_answer"].tolist() == pytest.approx([expected] * 2)
        assert summary["beats_baseline"].notna().all()
    unlabelled = papa.measure(model, data, score="agreement", **QUICK).summary
    assert unlabelled[["always_one_answer", "beats_baseline"]].isna().all(axis=None)


@pytest.mark.parametrize("score", ["agreement", "accuracy"])
def test_heads_of_a_model_that_answers_one_class_are_not_told(score: str) -> None:
    model = bert("ForSequenceClassification", num_labels=3)
    model.classifier.bias.data = torch.tensor([0.0, 50.0, 0.0])
    measurement = papa.measure(model, labelled(halves()), score=score, **QUICK)
    heads = measurement.heads()
    assert [*heads["verdict"]] == ["undecided"]
    assert heads["reason"].all()
    before, constant, _ = measurement.answers[0].partition("with every head constant")
    assert constant
    assert heads["reason"].iloc[0] in before
    assert "drop" not in measurement.answers[0]


def test_drops_of_a_loss_are_nats() -> None:
    measurement = papa.measure(gpt(), halves(), **QUICK)
    summary = measurement.summary
    heads = measurement.heads("50nats")
    lost = summary["original"] - summary["mean"]
    assert summary["difference"].tolist() == pytest.approx(lost.tolist())
    assert summary["perplexity_ratio"].tolist() == pytest.approx(np.exp(lost).tolist())
    assert summary[["relative_drop", "drop_low", "drop_high"]].isna().all(axis=None)
    assert heads["drop"].tolist() == pytest.approx(lost.tolist()[1:])
    assert "nats" in measurement.answers[0]
    assert "%" not in measurement.answers[0]
    with pytest.raises(papa.PapaError, match="nats"):
        measurement.heads(0.05)


def test_a_model_in_half_precision_is_itself_where_no_head_is_constant() -> None:
    model = bert("ForTokenClassification", num_labels=5).bfloat16()
    measurement = papa.measure(model, halves(), substitutes=["zeros"], **QUICK)
    assert mean(measurement, 1) == 1 > mean(measurement, 0)
    with torch.no_grad():
        embeds = bert().half()
        embeds.encoder.layer[-1].output.LayerNorm.bias[0] = 1.2e4
    assert 0.9 < mean(papa.measure(embeds, halves(), **QUICK), 1) <= 1, "sums do not overflow"


def test_texts_are_halved_for_every_order(shallow: str) -> None:
    model = AutoModel.from_pretrained(shallow)
    tokenizer = AutoTokenizer.from_pretrained(shallow)
    options = {"tokenizer": tokenizer, "score": "similarities", "progress": False}
    measurement = papa.measure(
        model,
        SENTENCES * 2,
        substitutes=["average", {"kind": "streaming", "sinks": 1, "recent": 2}],
        orders=["lambda", [(1, 3)], "reversed:last_to_first"],
        keep=[1, 23 / 24],
        **options,
    )
    assert set(measurement.summary["constants"]) == {"average", "streaming, 1, 2"}
    heads = {
        (cell.order, cell.constants): constant_heads
        for cell, constant_heads in measurement.constant_heads.items()
        if constant_heads
    }
    assert heads["scores:custom", "average"] == ((1, 3),)
    assert heads["reversed:last_to_first", "average"] == ((0, 11),)
    (first,) = papa.constant_heads(measurement.head_scores, count=1)
    assert heads["lambda", "average"] == (first,)
    table = {"body": SENTENCES}
    splits = {"train": table, "validation": table}
    columns = papa.Task(text="body", label=None)
    repeated = papa.measure(model, splits, task=columns, orders=["random"], keep=[0], **options)
    pandas.testing.assert_series_equal(
        repeated.summary["mean"],
        papa.measure(
            model, dict.fromkeys(splits, SENTENCES), orders=["random"], keep=[0], **options
        ).summary["mean"],
    )


def test_second_texts_of_a_table_are_read(shallow: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(shallow).eval()
    tokenizer = AutoTokenizer.from_pretrained(shallow)
    table = {"text": SENTENCES, "text_pair": SENTENCES[::-1], "label": [0, 1] * 3}
    without_pairs = {name: column for name, column in table.items() if name != "text_pair"}

    def measured(data: Any, task: papa.Task | None = None) -> list[float]:
        splits = {"train": data, "validation": data}
        options: dict[str, object] = {
            "tokenizer": tokenizer,
            "score": "negative_log_perplexity",
            "substitutes": ["zeros"],
        }
        return papa.measure(model, splits, task=task, **options, **QUICK).summary["mean"].tolist()

    assert (
        measured(table)
        == measured(table, papa.Task(text_pair="text_pair"))
        != measured(without_pairs)
    )


def test_embeddings_that_are_no_means_are_refused(tmp_path: Path) -> None:
    folder = sentence_encoder(tmp_path, lambda: Pooling(32, "cls"))
    model = AutoModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.eval()
    calls: list[Callable[[], object]] = [
        lambda: papa.measure(model, SENTENCES, tokenizer=tokenizer, progress=False),
        lambda: papa.fidelity(
            model, SENTENCES, heads=[(0, 0)], substitute="zeros", tokenizer=tokenizer
        ),
        lambda: papa.head_scores(model, SENTENCES, tokenizer=tokenizer, progress=False),
    ]
    for call in calls:
        with pytest.raises(EncoderError, match=rf"{re.escape(str(folder))}.*cls"):
            call()
    means = AutoModel.from_pretrained(sentence_encoder(tmp_path / "means", mean_pooling)).eval()
    assert (
        papa.fidelity(
            means, SENTENCES, heads=[(0, 0)], substitute="zeros", tokenizer=tokenizer
        ).attrs["texts"]
        == 6
    )


def test_what_does_not_fit_is_refused_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("papa.native.scores.train_lambda", lambda *_, **__: pytest.fail("late"))
    short = {"input_ids": texts()[0]["input_ids"][:, :4]}
    (batch, _) = texts()
    wrong = {
        "constant matrices have 4": {"data": {"train": [short], "validation": [batch]}},
        "give one of negative_log_perplexity, agreement": {"data": [batch], "score": "accuracy"},
        "leave out store": {"data": [batch], "train_rows": 3},
        "holds one text": {"data": {"input_ids": batch["input_ids"][:1]}},
        "no order 'self_lambda' for this model": {"data": [batch], "orders": ["self_lambda"]},
        "shares of heads": {"data": [batch], "keep": [2]},
        "keep is [], expected a list": {"data": [batch], "keep": []},
        "texts: give one for each": {
            "data": [{name: values[:6] for name, values in batch.items()}],
            "score": lambda outputs, _: outputs.logits[:, 0].flatten(),
        },
    }
    for sentence, arguments in wrong.items():
        with pytest.raises(papa.PapaError, match=re.escape(sentence)):
            papa.measure(gpt(), arguments.pop("data"), progress=False, **arguments)
    model = bert("ForSequenceClassification", num_labels=3)
    tokenizer = AutoTokenizer.from_pretrained(papa.load_encoder("embedded/all-MiniLM-L6-v2").path)
    beyond = {"text": SENTENCES, "label": [5, *range(5)]}
    with pytest.raises(
        papa.PapaError, match="label 5 is not a class of the model's head: give 0 to 2"
    ):
        papa.measure(model, beyond, tokenizer=tokenizer)
    model.bert.train()
    with pytest.raises(papa.PapaError, match="train mode"):
        papa.measure(model, [batch])


WORDS = 4
WIDTH = 32
HEADS = 4
OWN = WIDTH // HEADS


def planted() -> Any:
    """Its first numbers say which word a token is; the head of the model reads the next ones. Each
    text is one word over and over.
    """
    sizes = {"n_layer": 1, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 16, "n_inner": 4}
    marks = {"bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False}
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **sizes, **marks)).eval()
    block = model.transformer.h[0]
    word = torch.eye(WORDS)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 or not parameter.eq(1).all():
                parameter.zero_()
        model.transformer.wte.weight[:, :WORDS] = word
        model.lm_head.weight[:, WORDS : 2 * WORDS] = word / 2
        for head, strength in ((0, 0.2), (1, -0.1)):
            start = head * OWN
            block.attn.c_attn.weight[:WORDS, 2 * WIDTH + start :][:, :WORDS] = word
            block.attn.c_proj.weight[start : start + WORDS, WORDS : 2 * WORDS] = strength * word
    return model


DATA = [{"input_ids": torch.arange(WORDS)[:, None].expand(WORDS, size)} for size in (5, 6, 7, 8)]


@pytest.mark.slow
def test_planted_heads_have_their_roles_however_texts_are_batched() -> None:
    model = planted()
    options: dict[str, object] = {
        "method": "causal_gates",
        "substitute": "zeros",
        "progress": False,
    }
    gates = papa.head_scores(model, DATA, ranking_seeds=[0, 1], **options)
    assert gates["role"].tolist() == ["facilitating", "interfering", *["irrelevant"] * 2]
    loss = papa.head_scores(model, DATA, **{**options, "method": "effect"})["score"]
    assert loss[0] > 0.05 > 0 > loss[1], "what the roles say"
    assert loss[2:].abs().max() < 1e-6
    assert gates["score"][0] > 0.9 > 0.1 > gates["score"][1:].max()
    single_rows = [{"input_ids": row[None]} for batch in DATA for row in batch["input_ids"]]
    row_by_row = papa.head_scores(model, single_rows, ranking_seeds=[0, 1], **options)
    pandas.testing.assert_frame_equal(row_by_row, gates)
    options["substitute"] = "first"
    by_first = papa.head_scores(model, DATA, ranking_seeds=[0], **options)
    assert set(by_first["role"]) == {"irrelevant"}, (
        "of one word over and over the first is like any"
    )


def test_gates_that_still_move_give_no_role() -> None:
    gates = papa.head_scores(
        planted(),
        DATA,
        method="causal_gates",
        substitute="zeros",
        epochs=3,
        ranking_seeds=[0],
        progress=False,
    )
    assert gates["role"].isna().all()


def test_answers_compare_orders_with_random() -> None:
    orders = ["lambda", "random", "first_to_last"]
    measurement = papa.measure(gpt(), texts(), orders=orders, keep=[1, 0.5], progress=False)
    assert "λ" in measurement.answers[-1]
    compared = [answer for answer in measurement.answers if "less random orders" in answer]
    assert len(compared) == 2
    assert all("not significant" in answer for answer in compared), "three lists tell nothing"
    enough = papa.measure(gpt(), texts() * 3, orders=["lambda"], keep=[1, 0.5], progress=False)
    assert "Kendall's τ" in enough.answers[-1]
    assert "labels" not in enough.answers[-1].replace("No labels were read", "")


def test_it_follows_a_loss() -> None:
    with pytest.raises(papa.PapaError, match="causal_gates needs"):
        papa.head_scores(bert(), texts(), method="causal_gates", substitute="zeros", progress=False)
    gates = papa.head_scores(
        gpt(), texts(), method="causal_gates", epochs=2, ranking_seeds=[0], progress=False
    )
    shares = gates[["facilitating", "interfering", "irrelevant"]]
    assert shares.min(axis=None) >= 0
    assert shares.max(axis=None) <= 1


@pytest.mark.parametrize("as_table", [False, True])
def test_texts_of_both_splits_are_counted(shallow: str, as_table: bool) -> None:
    model = AutoModel.from_pretrained(shallow).eval()
    splits = {"train": SENTENCES[:4], "validation": SENTENCES[2:]}
    data = {name: {"text": sentences} for name, sentences in splits.items()} if as_table else splits
    tokenizer = AutoTokenizer.from_pretrained(shallow)
    measurement = papa.measure(model, data, substitutes=["zeros"], tokenizer=tokenizer, **QUICK)
    assert "2 of 4 validation rows" in measurement.answers[-1]
    apart = {**data, "validation": [f"{sentence} late" for sentence in SENTENCES[2:]]}
    if as_table:
        apart["validation"] = {"text": apart["validation"]}
    measurement = papa.measure(model, apart, substitutes=["zeros"], tokenizer=tokenizer, **QUICK)
    assert not any("validation rows" in answer for answer in measurement.answers)
