"""A model's native head in a study: against the stock model, and against itself."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy.stats import spearmanr
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)

import papa
from papa.errors import CheckError
from papa.flows.check import check_study
from papa.heads.constants import ConstantMatrices
from papa.models.native import load_native_model, native_class
from papa.models.reference import EMBEDDED, embedded_folder
from papa.native.loading import open_native
from papa.native.losses import loss_of_task
from papa.native.training import ThetaTraining, train_lambda
from papa.ranking.learned import lambda_spec
from papa.reporting.answers import answers
from papa.scores.drops import MaxDrop
from papa.scores.summary import heads_at, summarise
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.head_scores import read_head_scores
from papa.tasks.native_head import read_answers
from papa.tasks.step import Step
from papa.text.corpus import open_corpus
from papa.text.tokens import IGNORED
from tests.finished import Scored, cells_of, described, opened, score_study
from tests.flows.conftest import (
    hurried,  # noqa: F401
    invoke,
)
from tests.make import SIZES
from tests.models.inputs import with_tokenizer

pytestmark = pytest.mark.unchecked
WORDS = ("red", "blue", "green", "dog", "cat", "sun", "tree", "door")
NAMES = ("blue before red", "red before blue")
LABELS = {"id2label": dict(enumerate(NAMES)), "label2id": {NAMES[0]: 0, NAMES[1]: 1}}
SMALL: dict[str, Any] = SIZES | {
    "num_hidden_layers": 2,
    "vocab_size": 30522,
    "max_position_embeddings": 32,
    "initializer_range": 0.02,
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    drawn_rows = []
    for _ in range(count):
        words = draw.sample(WORDS, draw.randint(4, 8))
        words = [*dict.fromkeys([*words, "red", "blue"])]
        draw.shuffle(words)
        label = NAMES[words.index("red") < words.index("blue")]
        drawn_rows.append({"text": " ".join(words), "label": label})
    return drawn_rows


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(embedded_folder())


def padded(texts: list[str]) -> Any:
    return tokenizer()(texts, padding=True, return_tensors="pt")


def written(folder: Path, count: int) -> Path:
    for split, seed in (("train", 1), ("validation", 2)):
        lines = "".join(json.dumps(row) + "\n" for row in rows(count, seed))
        (folder / f"{split}.jsonl").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("data"), 120)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, **LABELS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(400):
        batch = rows(64, 1000 + step)
        truth = torch.tensor([NAMES.index(row["label"]) for row in batch])
        loss = model(**padded([row["text"] for row in batch]), labels=truth).loss
        if loss.item() < 0.05:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return with_tokenizer(model.eval(), tmp_path_factory.mktemp("classifier"))


def own_step(study: Scored, metric: str, fraction: float) -> Step:
    (step,) = next(
        probes
        for cell, probes in cells_of(study[0]).items()
        if (cell.task, cell.fraction) == (metric, fraction)
    )
    return step


def answered(study: Scored, metric: str, fraction: float) -> dict[str, np.ndarray]:
    return read_answers(own_step(study, metric, fraction)["answers"].reference(study[1]))[0]


def scores(study: Scored, metric: str) -> dict[float, float]:
    return study.table.query("task == @metric").groupby("fraction")["score"].mean().to_dict()


TEXT = {"kind": "text", "head": "native", "columns": {"text": "text"}}
LABELLED = {**TEXT, "columns": {"text": "text", "label": "label"}, "metric": "accuracy"}


@pytest.fixture(scope="module")
def classified(classifier: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    settings = {"orders": ["first_to_last", "random"], "probe_seeds": [0, 1, 2]}
    document = described(classifier, LABELLED, {**TEXT, "metric": "agreement"}, **settings)
    return score_study(document, data, tmp_path_factory.mktemp("classified") / "store")


@torch.no_grad()
def test_a_classifier_scores_what_the_stock_model_scores_and_agrees_with_itself(
    classified: Scored, classifier: Path
) -> None:
    validation = rows(120, 2)
    stock = BertForSequenceClassification.from_pretrained(classifier).eval()
    logits = stock(**padded([row["text"] for row in validation])).logits.numpy()
    assert np.abs(answered(classified, "accuracy", 1)["logits"] - logits).max() < 1e-5
    right = [
        NAMES[answer] == row["label"]
        for answer, row in zip(logits.argmax(1), validation, strict=True)
    ]
    assert scores(classified, "accuracy")[1] == np.mean(right) > 0.9
    agreements = scores(classified, "agreement")
    accuracy = scores(classified, "accuracy")
    assert agreements[1] == 1
    assert agreements[0] < 0.9
    assert accuracy[0] < accuracy[1] - 0.1
    same = answered(classified, "agreement", 1)["logits"].argmax(1)
    constant_answers = answered(classified, "agreement", 0)["logits"].argmax(1)
    assert agreements[0] == pytest.approx(np.mean(same == constant_answers))


def test_only_what_has_labels_has_a_baseline(classified: Scored) -> None:
    summary = summarise(classified.table).groupby("task").first()
    labels = [row["label"] for row in rows(120, 2)]
    majority = max(map(labels.count, NAMES)) / len(labels)
    accuracy = summary.loc["accuracy"]
    agreement = summary.loc["agreement"]
    assert accuracy["always_one_answer"] == pytest.approx(majority)
    assert labels.count(accuracy["one_answer"]) == max(map(labels.count, NAMES))
    assert accuracy["beats_baseline"]
    assert summary["word_embeddings"].isna().all()
    assert pandas.isna(agreement["beats_baseline"])
    assert pandas.isna(agreement["always_one_answer"])
    assert [*summary["reason"]] == ["", ""]


def test_of_a_head_that_answers_one_class_nothing_is_told(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, **LABELS))
    model.classifier.bias.data = torch.tensor([50.0, -50.0])
    folder = with_tokenizer(model.eval(), tmp_path / "model")
    tasks = LABELLED, {**TEXT, "metric": "agreement"}
    study = score_study(
        described(folder, *tasks, keep=[1, 0], probe_seeds=[0, 1]), data, tmp_path / "store"
    )
    summary = summarise(study.table)
    # On the majority's share, or on less where the head answers the other class.
    assert [*summary["beats_baseline"].fillna(True)] == [False, False, True, True]
    limit = MaxDrop.parse("1%", "max_drop")
    verdicts = heads_at(summary, {}, limit)
    assert [*verdicts["verdict"]] == ["undecided"] * 2
    assert verdicts["reason"].str.contains(NAMES[0]).all()
    for sentence in answers(summary):
        before, constant, _ = sentence.partition("with every head constant")
        assert constant
        assert f"'{NAMES[0]}'" in before
        assert "drop" not in sentence


@torch.no_grad()
def test_embeddings_are_the_stock_models_and_metrics_share_them(data: Path, tmp_path: Path) -> None:
    metrics = ("nearest_10", "nearest_1", "similarities", "cosine")
    tasks = [{**TEXT, "metric": metric, "validation_rows": 40} for metric in metrics]
    document = described(EMBEDDED, *tasks, keep=[1, 0], probe_seeds=[0, 1])
    study = score_study(document, data, tmp_path / "store")
    stages = [step.stage.name for step in study[0].steps]
    counts = [stages.count(stage) for stage in ("tokenise", "average", "answer", "score_answers")]
    assert counts == [1, 1, 2, 8]
    corpus = open_corpus(own_step(study, "cosine", 1)["text"].reference(study[1]))
    tokens = corpus.split("validation").tokens()
    rows = np.split(tokens.input_ids.astype(np.int64), np.cumsum(tokens.lengths)[:-1])
    stock = AutoModel.from_pretrained(embedded_folder()).eval()
    states = [
        stock(input_ids=torch.from_numpy(token_states)[None]).last_hidden_state[0]
        for token_states in rows
    ]
    pooled = torch.stack([token_states.mean(0) for token_states in states]).numpy()
    assert np.abs(answered(study, "cosine", 1)["embeddings"] - pooled).max() < 1e-5
    for metric in metrics:
        scores_by_fraction = scores(study, metric)
        assert scores_by_fraction[1] == pytest.approx(1)
        assert 0 <= scores_by_fraction[0] < 0.95


@torch.no_grad()
def test_masked_words_score_what_the_stock_model_scores(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = BertForMaskedLM(BertConfig(**{**SMALL, "initializer_range": 0.35}))
    folder = with_tokenizer(model.eval(), tmp_path / "model")
    metrics = ("negative_log_perplexity", "agreement")
    tasks = [{**TEXT, "kind": "mlm", "metric": metric} for metric in metrics]
    study = score_study(described(folder, *tasks, keep=[1, 0]), data, tmp_path / "store")
    corpus = open_corpus(own_step(study, "agreement", 1)["text"].reference(study[1]))
    split = corpus.split("validation")
    tokens = split.tokens()
    logits = list[torch.Tensor]()
    for ids in np.split(tokens.input_ids.astype(np.int64), np.cumsum(tokens.lengths)[:-1]):
        logits.append(model(input_ids=torch.from_numpy(ids)[None]).logits[0])
    labels = torch.from_numpy(split.labels).long()
    loss = torch.nn.functional.cross_entropy(torch.cat(logits), labels, ignore_index=IGNORED)
    expected = -float(loss)
    assert scores(study, "negative_log_perplexity")[1] == pytest.approx(expected, abs=1e-5)
    assert scores(study, "agreement")[1] == 1
    assert scores(study, "agreement")[0] < 0.95


def test_papa_heads_and_export_take_nats_of_a_loss(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    folder = with_tokenizer(BertForMaskedLM(BertConfig(**SMALL)).eval(), tmp_path / "model")
    task = {**TEXT, "kind": "mlm", "metric": "negative_log_perplexity"}
    document = described(folder, task, keep=[1, 0], probe_seeds=[0, 1])
    summary = opened(score_study(document, data, tmp_path / "store")).summary
    where = "--store", str(tmp_path / "store")
    text = invoke("heads", "s", *where, "--max-drop", "9nats").out
    lost = summary["difference"].iloc[1]
    assert f"drop {lost:z.3f} nats, perplexity × {math.exp(lost):.2f}" in " ".join(text.split())
    answer = json.loads(invoke("heads", "s", *where, "--max-drop", "9nats", "--json").out)
    (count,) = answer["answers"][0]["counts"]
    assert (count["verdict"], count["drop"]) == ("within", pytest.approx(lost))
    assert (answer["max_drop"], answer["max_nats"]) == (None, 9)
    for command in ("heads s", "export s --order first_to_last --to to"):
        refused = invoke(*command.split(), *where, "--max-drop", "5%")
        assert refused.code != 0
        assert "nats" in refused.err
        assert "5 %" in refused.err


FEW = {**TEXT, "metric": "nearest_10", "validation_rows": 9}
MISFITS: list[tuple[bool, dict[str, Any], str]] = [
    (True, LABELLED, "labels that the model's head does not know (blue after red, red after blue)"),
    (False, LABELLED, "has no head of its own for SequenceClassification: its weights lack"),
    (False, {**TEXT, "metric": "agreement"}, "has no head that gives classes (BertModel)"),
    (False, FEW, "has 9 validation rows, and nearest_10 needs 21 to 2000"),
]


def test_a_head_that_does_not_fit_is_one_sentence_before_anything_runs(
    classifier: Path, data: Path, tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        renamed = (data / f"{split}.jsonl").read_text().replace(" before ", " after ")
        (tmp_path / f"{split}.jsonl").write_text(renamed)
    for has_head, task, sentence in MISFITS:
        document = described(classifier if has_head else EMBEDDED, task)
        study = resolve_study(document, folder=tmp_path, origin="test")
        with pytest.raises(CheckError, match=re.escape(sentence)):
            check_study(study, Store(tmp_path / "store"))


SLOTS = 64
COLUMNS = {"text": "premise", "text_pair": "hypothesis", "label": "follows"}
TASK: dict[str, Any] = {"kind": "similarity", "head": "native", "metric": "cosine_spearman"}
TASK |= {"columns": COLUMNS, "slots": SLOTS}
DESIGN: dict[str, Any] = {
    "orders": ["lambda", "first_to_last"],
    "probe_seeds": [0, 1],
    "ranking": {"rows": 8, "epochs": 1},
    "ranking_seeds": [0],
}


@pytest.fixture(scope="module")
def pairs(corpora_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 16), ("validation", 40)):
        path = corpora_folder / "review_pairs" / f"{split}.jsonl"
        frame = pandas.read_json(path, lines=True).head(count)
        rows = frame.rename(columns={"sentence1": "premise", "sentence2": "hypothesis"})
        # Nine degrees of likeness, so that scores differ with small changes of embeddings.
        rows = rows.assign(follows=[float(row % 9) for row in range(count)]).drop(columns="label")
        rows.to_json(folder / f"{split}.jsonl", orient="records", lines=True)
    return folder


@pytest.fixture(scope="module")
def scored(shallow: str, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    to = tmp_path_factory.mktemp("s") / "store"
    return score_study(described(shallow, TASK, **DESIGN), pairs, to)


@torch.no_grad()
def test_the_score_is_that_of_the_stock_model(scored: Scored, shallow: str, pairs: Path) -> None:
    study = scored.table
    stock = AutoModel.from_pretrained(shallow).eval()
    tokenizer = AutoTokenizer.from_pretrained(shallow)

    def embedded(texts: list[str]) -> torch.Tensor:
        cut = {"padding": True, "truncation": True, "max_length": SLOTS}
        inputs = tokenizer(texts, **cut, return_tensors="pt")
        real = inputs["attention_mask"][:, :, None]
        return (stock(**inputs).last_hidden_state * real).sum(1) / real.sum(1)

    rows = pandas.read_json(pairs / "validation.jsonl", lines=True)
    first, second = (embedded(rows[name].tolist()) for name in ("premise", "hypothesis"))
    cosines = torch.nn.functional.cosine_similarity(first, second).numpy()
    expected = spearmanr(cosines, rows["follows"]).statistic
    original_scores = study[study["fraction"] == 1]["score"]
    assert original_scores.tolist() == pytest.approx([expected] * len(original_scores), abs=1e-3)
    apart = spearmanr(cosines, np.roll(rows["follows"], 1)).statistic
    assert abs(apart - expected) > 0.05, "negative control: labels of other pairs"
    assert study["score"].nunique() > 3, "negative control: cells differ"


def test_the_average_is_that_of_both_texts_alone(scored: Scored, shallow: str, pairs: Path) -> None:
    """Not of the pair in one layout: the same texts, a row each, have the same average."""
    (step,) = (
        average_step for average_step in scored.steps.steps if average_step.stage.name == "average"
    )
    ours = ConstantMatrices.load(step.folder(scored.store), encoder=step["encoder"], slots=SLOTS)
    encoder = papa.load_encoder(shallow, slots=SLOTS, device="cpu")
    rows = pandas.read_json(pairs / "train.jsonl", lines=True)
    texts = [*rows["premise"], *rows["hypothesis"]]
    average_of_texts = papa.average(encoder, texts, progress=False)
    torch.testing.assert_close(ours.matrices, average_of_texts.matrices, atol=1e-6, rtol=0)
    together = papa.average(encoder, rows, text="premise", text_pair="hypothesis", progress=False)
    assert (ours.matrices - together.matrices).abs().max() > 0.01, "negative control"


RATE = 0.05


@pytest.fixture(scope="module")
def lambda_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("lambda_data"), 48)


def ranked(lambda_data: Path, folder: Path, encoder: str, **task: Any) -> tuple[Step, Store]:
    probe = {"learning_rate": RATE, "batch_size": 16, "epochs": 3}
    columns = {"text": "text", "label": "label"}
    entry = {"kind": "text", "head": "native", "columns": columns, "probe": probe, **task}
    entry = {key: value for key, value in entry.items() if value is not None}
    document = described(encoder, entry, orders=["lambda"], keep=[0.5])
    steps, store, *_ = score_study(document, lambda_data, folder)
    (rank,) = (step for step in steps.steps if step.stage.name == "train_lambda")
    return rank, store


def lambdas(ranked_step: tuple[Step, Store]) -> np.ndarray:
    rank, store = ranked_step
    return read_head_scores("lambda", {0: rank.reference(store)}).by_seed[0]


def retrained(ranked_step: tuple[Step, Store], rate: float) -> tuple[list[float], np.ndarray]:
    rank, store = ranked_step
    corpus = open_corpus(rank["text"].reference(store))
    task = rank["task"]
    split = corpus.split("train")
    reference = rank["encoder"]
    loaded = load_native_model(reference, native_class(task, reference))
    opened = open_native(loaded, task, reference, split, corpus.label_names)
    native = replace(opened, loss=loss_of_task(task))
    model = native.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = list[float]()
    lambdas = train_lambda(
        ThetaTraining(
            native,
            ConstantMatrices.load(rank["average"].folder(store)),
            split.rows,
            lambda_spec(task, rank["ranking"].model_copy(update={"learning_rate": rate})),
            seed=0,
        ),
        on_epoch=lambda epoch, loss: losses.append(loss[0]),
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return losses, lambdas


LAMBDA_TEXT = {"columns": {"text": "text"}}
KINDS: list[tuple[type[PreTrainedModel], dict[str, Any]]] = [
    (BertModel, {"metric": "cosine"}),
    (BertForSequenceClassification, {"metric": "accuracy"}),
    (BertForSequenceClassification, {"metric": "agreement", **LAMBDA_TEXT}),
    (BertForMaskedLM, {"kind": "mlm", "metric": "negative_log_perplexity", **LAMBDA_TEXT}),
]


@pytest.mark.parametrize(("family", "task"), KINDS)
def test_the_loss_at_the_mix_of_lambda_falls(
    family: Any, task: dict[str, Any], lambda_data: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    sharp = family(BertConfig(**{**SMALL, **LABELS, "initializer_range": 0.35}))
    model = str(with_tokenizer(sharp, tmp_path / "model"))
    ranked_step = ranked(lambda_data, tmp_path / "store", model, **task)
    losses, trained_lambda = retrained(ranked_step, RATE)
    assert np.array_equal(trained_lambda[-1], lambdas(ranked_step))
    assert losses[-1] < losses[0]
    still, _ = retrained(ranked_step, 1e-9)
    assert max(still) - min(still) < 0.1 * (losses[0] - losses[-1])


def test_the_rate_that_nobody_names_moves_the_one_head_that_says_something(
    lambda_data: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = BertModel(BertConfig(**{**SMALL, "initializer_range": 0.35}))
    width = model.config.hidden_size // model.config.num_attention_heads
    planted = (1, 2)
    with torch.no_grad():
        for number, layer in enumerate(model.encoder.layer):
            for head in range(model.config.num_attention_heads):
                if (number, head) != planted:
                    span = slice(head * width, (head + 1) * width)
                    layer.attention.output.dense.weight[:, span] = 0
    encoder = str(with_tokenizer(model, tmp_path / "model"))
    task = {"metric": "cosine", **LAMBDA_TEXT}
    trained_lambda = lambdas(ranked(lambda_data, tmp_path / "store", encoder, **task, probe=None))
    other_lambdas = np.delete(
        trained_lambda.ravel(), np.ravel_multi_index(planted, trained_lambda.shape)
    )
    assert trained_lambda[planted] > 0.54
    assert np.abs(other_lambdas - 0.5).max() < 1e-6
    slow = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
    still = lambdas(ranked(lambda_data, tmp_path / "slow", encoder, **task, probe=slow))
    assert abs(still[planted] - 0.5) < 0.001, "negative control: at a probe's rate"
