"""A model's native head in a study: against the stock model, and against itself."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import transformers as tf

from papa.errors import CheckError
from papa.flows.check import check_study
from papa.heads.constants import ConstantMatrices
from papa.models.native import class_of_native_head, load_native_model
from papa.models.reference import EMBEDDED, embedded_folder
from papa.progress import ignore_progress
from papa.scores.summary import summarise
from papa.spec import ExecutionSpec, TaskSpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.context import Context
from papa.tasks.native_head import read_answers
from papa.tasks.step import Step
from papa.text.corpus import open_corpus
from papa.text.layout import PackedTokens
from papa.text.tokens import IGNORED
from tests.finished import Scored, cells_of, described, score_study
from tests.make import outputs_of
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import LABELS, NAMES, SHAPE, SHARP, padded, rows, write_splits

pytestmark = pytest.mark.unchecked
TEXT = {"kind": "text", "head": "native", "columns": {"text": "text"}}
LABELLED = {**TEXT, "columns": {"text": "text", "label": "label"}, "metric": "accuracy"}
AGREEMENT = {**TEXT, "metric": "agreement"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), 120)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = tf.BertForSequenceClassification(tf.BertConfig.from_dict(SHAPE | LABELS))
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


def probe_step(study: Scored, metric: str, fraction: float) -> Step:
    wanted = (metric, fraction)
    by_cell = cells_of(study.pipeline).items()
    (step,) = next(probes for cell, probes in by_cell if (cell.task, cell.fraction) == wanted)
    return step


def rows_of(tokens: PackedTokens) -> list[torch.Tensor]:
    """The token ids [1, n] of each row."""
    ids = torch.from_numpy(tokens.input_ids.astype(np.int64)).split(tokens.lengths.tolist())
    return [row[None] for row in ids]


def answered(study: Scored, metric: str, fraction: float) -> dict[str, np.ndarray]:
    return read_answers(probe_step(study, metric, fraction)["answers"].reference(study.store))[0]


def scores(study: Scored, metric: str) -> dict[float, float]:
    return study.table.query("task == @metric").groupby("fraction")["score"].mean().to_dict()


@pytest.fixture(scope="module")
def classified(classifier: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    orders = ["first_to_last", "random"]
    document = described(classifier, LABELLED, AGREEMENT, orders=orders, probe_seeds=[0, 1, 2])
    return score_study(document, data, tmp_path_factory.mktemp("classified") / "store")


@torch.no_grad()
def test_accuracy_is_that_of_the_stock_model(classified: Scored, classifier: Path) -> None:
    validation = rows(120, 2)
    stock = tf.BertForSequenceClassification.from_pretrained(classifier).eval()
    logits = outputs_of(stock, padded([row["text"] for row in validation])).logits.numpy()
    assert np.abs(answered(classified, "accuracy", 1)["logits"] - logits).max() < 1e-5
    truth = [NAMES.index(row["label"]) for row in validation]
    accuracy = scores(classified, "accuracy")
    assert accuracy[1] == np.mean(logits.argmax(1) == truth) > 0.9
    assert accuracy[0] < accuracy[1] - 0.1


def test_batches_have_as_many_tokens_as_execution_says(classified: Scored) -> None:
    step = probe_step(classified, "accuracy", 1)["answers"]
    task: TaskSpec = step["task"]
    model = load_native_model(step["encoder"], class_of_native_head(task, step["encoder"]))
    execution = ExecutionSpec(batch_tokens=40)
    context = Context((step,), classified.store, execution, ignore_progress, model=model)
    split = open_corpus(context.artifacts[step["text"]]).split("validation")
    native = context.open_native_head(task, step["encoder"], split)
    shapes = [batch.inputs["input_ids"].shape for batch in native.texts.batches()]
    assert max(texts * tokens for texts, tokens in shapes) <= 40
    assert max(texts for texts, _ in shapes) > 1
    assert sum(texts for texts, _ in shapes) == 120


def test_agreement_is_with_the_answers_of_the_unchanged_model(classified: Scored) -> None:
    answers, constant_answers = (
        answered(classified, "agreement", fraction)["logits"].argmax(1) for fraction in (1, 0)
    )
    agreement = scores(classified, "agreement")
    assert agreement[1] == 1
    assert agreement[0] == pytest.approx(np.mean(answers == constant_answers))
    assert agreement[0] < 0.9


def test_only_what_has_labels_has_a_baseline(classified: Scored) -> None:
    summary = summarise(classified.table).groupby("task").first()
    labels = [row["label"] for row in rows(120, 2)]
    majority = max(map(labels.count, NAMES))
    accuracy = summary.loc["accuracy"]
    agreement = summary.loc["agreement"]
    assert accuracy["always_one_answer"] == pytest.approx(majority / len(labels))
    assert labels.count(accuracy["one_answer"]) == majority
    assert accuracy["beats_baseline"]
    assert pandas.isna(agreement["beats_baseline"])
    assert pandas.isna(agreement["always_one_answer"])


@torch.no_grad()
def test_embeddings_are_the_stock_models(data: Path, tmp_path: Path) -> None:
    metrics = ("nearest_10", "nearest_1", "similarities", "cosine")
    tasks = [{**TEXT, "metric": metric, "validation_rows": 40} for metric in metrics]
    document = described(EMBEDDED, *tasks, keep=[1, 0], probe_seeds=[0, 1])
    study = score_study(document, data, tmp_path / "store")
    stages = [step.stage.name for step in study.pipeline.steps]
    assert (stages.count("answer"), stages.count("score_answers")) == (2, 8), "metrics share them"
    corpus = open_corpus(probe_step(study, "cosine", 1)["text"].reference(study.store))
    tokens = corpus.split("validation").tokens()
    stock = tf.AutoModel.from_pretrained(embedded_folder()).eval()
    pooled = [stock(input_ids=row).last_hidden_state[0].mean(0).numpy() for row in rows_of(tokens)]
    assert np.abs(answered(study, "cosine", 1)["embeddings"] - pooled).max() < 1e-5
    for metric in metrics:
        scores_by_fraction = scores(study, metric)
        assert scores_by_fraction[1] == pytest.approx(1)
        assert 0 <= scores_by_fraction[0] < 0.95


@torch.no_grad()
def test_masked_words_score_what_the_stock_model_scores(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = tf.BertForMaskedLM(tf.BertConfig.from_dict(SHARP)).eval()
    folder = with_tokenizer(model, tmp_path / "model")
    metrics = ("negative_log_perplexity", "agreement")
    tasks = [{**TEXT, "kind": "mlm", "metric": metric} for metric in metrics]
    study = score_study(described(folder, *tasks, keep=[1, 0]), data, tmp_path / "store")
    corpus = open_corpus(probe_step(study, "agreement", 1)["text"].reference(study.store))
    split = corpus.split("validation")
    tokens = split.tokens()
    logits = [model(input_ids=row).logits[0] for row in rows_of(tokens)]
    labels = torch.from_numpy(split.labels).long()
    loss = torch.nn.functional.cross_entropy(torch.cat(logits), labels, ignore_index=IGNORED)
    expected = pytest.approx(-float(loss), abs=1e-5)
    assert scores(study, "negative_log_perplexity")[1] == expected
    assert scores(study, "agreement")[1] == 1
    assert scores(study, "agreement")[0] < 0.95


OTHER_LABELS = {**LABELLED, "labels": ["blue after red", "red after blue"]}
MISFITS: list[tuple[bool, dict[str, object], str]] = [
    (True, OTHER_LABELS, "blue after red"),
    (False, LABELLED, "SequenceClassification"),
    (False, AGREEMENT, "BertModel"),
    (False, {**TEXT, "metric": "nearest_10", "validation_rows": 9}, "9 validation rows"),
]


@pytest.mark.parametrize(("has_head", "task", "expected"), MISFITS)
def test_a_head_that_does_not_fit_is_refused_before_anything_runs(
    classifier: Path,
    data: Path,
    tmp_path: Path,
    has_head: bool,
    task: dict[str, object],
    expected: str,
) -> None:
    for split in ("train", "validation"):
        text = (data / f"{split}.jsonl").read_text()
        renamed = text.replace(" before ", " after ") if task is OTHER_LABELS else text
        (tmp_path / f"{split}.jsonl").write_text(renamed)
    document = described(classifier if has_head else EMBEDDED, task)
    study = resolve_study(document, folder=tmp_path, origin="test")
    with pytest.raises(CheckError, match=expected):
        check_study(study, Store(tmp_path / "store"))


SLOTS = 64
SIMILARITY = {
    "kind": "similarity",
    "head": "native",
    "metric": "cosine_spearman",
    "columns": {"text": "premise", "text_pair": "hypothesis", "label": "follows"},
    "slots": SLOTS,
}


@pytest.fixture
def pairs(corpora_folder: Path, tmp_path: Path) -> Path:
    for split, count in (("train", 16), ("validation", 40)):
        path = corpora_folder / "review_pairs" / f"{split}.jsonl"
        frame = pandas.read_json(path, lines=True).head(count)
        frame = frame.rename(columns={"sentence1": "premise", "sentence2": "hypothesis"})
        # Nine degrees of likeness, so that scores differ with small changes of embeddings.
        frame = frame.assign(follows=[float(row % 9) for row in range(count)])
        frame.drop(columns="label").to_json(
            tmp_path / f"{split}.jsonl", orient="records", lines=True
        )
    return tmp_path


@torch.no_grad()
def average_of_stock(folder: str, texts: Iterable[Sequence[str]]) -> torch.Tensor:
    """The average by position of the stock model's attention, with the last token in slot S-1."""
    model = tf.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    sums: torch.Tensor | float = 0.0
    counts = torch.zeros(SLOTS, SLOTS)
    for text in texts:
        inputs = tokenizer(*text, truncation=True, max_length=SLOTS, return_tensors="pt")
        attention = torch.cat(model(**inputs, output_attentions=True).attentions)
        slots = torch.tensor([*range(attention.shape[-1] - 1), SLOTS - 1])
        placed = attention.new_zeros(*attention.shape[:2], SLOTS, SLOTS)
        placed[:, :, slots[:, None], slots] = attention
        sums = sums + placed
        counts[slots[:, None], slots] += 1
    return sums / counts.clamp(min=1)


def test_similarity_averages_single_texts(shallow: str, pairs: Path) -> None:
    similar = score_study(described(shallow, SIMILARITY, keep=[0]), pairs, pairs / "store")
    (step,) = (step for step in similar.pipeline.steps if step.stage.name == "average")
    folder = step.folder(similar.store)
    average = ConstantMatrices.load(folder)
    frame = pandas.read_json(pairs / "train.jsonl", lines=True)
    texts = [[text] for name in ("premise", "hypothesis") for text in frame[name]]
    expected = average_of_stock(shallow, texts)
    torch.testing.assert_close(average.matrices, expected, atol=1e-6, rtol=0)
    assert average.has_end_slot
    together = average_of_stock(shallow, frame[["premise", "hypothesis"]].to_numpy().tolist())
    assert (average.matrices - together).abs().max() > 0.01, "negative control"
