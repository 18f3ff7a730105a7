"""λ of a native head in a study: its loss falls, and heads that say something move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)

from papa.heads.constants import ConstantMatrices
from papa.models.native import load_native_model, native_class
from papa.native.loading import open_native
from papa.native.losses import loss_of_task
from papa.native.training import ThetaTraining, train_lambda
from papa.ranking.learned import lambda_spec
from papa.storage.store import Store
from papa.tasks.head_scores import read_head_scores
from papa.tasks.step import Step
from papa.text.corpus import open_corpus
from tests.finished import described, score_study
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import LABELS, SHARP, write_rows

pytestmark = pytest.mark.unchecked
RATE = 0.05
LABELLED = {"kind": "text", "head": "native", "columns": {"text": "text", "label": "label"}}
UNLABELLED = LABELLED | {"columns": {"text": "text"}}
PROBE = {"learning_rate": RATE, "batch_size": 16, "epochs": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data"), 48)


def ranked(data: Path, to: Path, encoder: Path, task: dict[str, object]) -> tuple[Step, Store]:
    document = described(encoder, task, orders=["lambda"], keep=[0.5])
    study = score_study(document, data, to)
    (step,) = (step for step in study.steps.steps if step.stage.name == "train_lambda")
    return step, study.store


def lambdas(step: Step, store: Store) -> np.ndarray:
    return read_head_scores("lambda", {0: step.reference(store)}).by_seed[0]


def retrained(step: Step, store: Store, rate: float) -> tuple[list[float], np.ndarray]:
    """Train λ anew; return the loss of each epoch, and λ after each."""
    corpus = open_corpus(step["text"].reference(store))
    task = step["task"]
    split = corpus.split("train")
    loaded = load_native_model(step["encoder"], native_class(task, step["encoder"]))
    native = open_native(loaded, task, step["encoder"], split, corpus.label_names)
    before = {name: value.clone() for name, value in native.model.state_dict().items()}
    losses = list[float]()
    trained = train_lambda(
        ThetaTraining(
            replace(native, loss=loss_of_task(task)),
            ConstantMatrices.load(step["average"].folder(store)),
            split.rows,
            lambda_spec(task, step["ranking"].model_copy(update={"learning_rate": rate})),
            seed=0,
        ),
        on_epoch=lambda epoch, loss: losses.append(loss[0]),
    )
    for name, value in native.model.state_dict().items():
        assert torch.equal(value, before[name]), "the model is frozen"
    return losses, trained


@pytest.mark.parametrize(
    ("family", "task"),
    [
        (BertModel, LABELLED | {"metric": "cosine"}),
        (BertForSequenceClassification, LABELLED | {"metric": "accuracy"}),
        (BertForSequenceClassification, UNLABELLED | {"metric": "agreement"}),
        (BertForMaskedLM, UNLABELLED | {"kind": "mlm", "metric": "negative_log_perplexity"}),
    ],
)
def test_the_loss_at_the_mix_of_lambda_falls(
    family: type[PreTrainedModel], task: dict[str, object], data: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = with_tokenizer(family(BertConfig(**SHARP, **LABELS)), tmp_path / "model")
    step, store = ranked(data, tmp_path / "store", model, task | {"probe": PROBE})
    losses, trained = retrained(step, store, RATE)
    assert np.array_equal(trained[-1], lambdas(step, store))
    assert losses[-1] < losses[0]
    still, _ = retrained(step, store, 1e-9)
    assert max(still) - min(still) < 0.1 * (losses[0] - losses[-1])


def test_the_default_rate_moves_the_planted_head(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = BertModel(BertConfig(**SHARP))
    width = model.config.hidden_size // model.config.num_attention_heads
    planted = (1, 2)
    for number, layer in enumerate(model.encoder.layer):
        weight = layer.attention.output.dense.weight.data
        for head in range(model.config.num_attention_heads):
            if (number, head) != planted:
                weight[:, head * width : (head + 1) * width] = 0
    encoder = with_tokenizer(model, tmp_path / "model")
    task = UNLABELLED | {"metric": "cosine"}
    trained = lambdas(*ranked(data, tmp_path / "store", encoder, task))
    others = np.delete(trained.ravel(), np.ravel_multi_index(planted, trained.shape))
    assert trained[planted] > 0.54
    assert np.abs(others - 0.5).max() < 1e-6
    slow = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
    still = lambdas(*ranked(data, tmp_path / "slow", encoder, task | {"probe": slow}))
    assert abs(still[planted] - 0.5) < 0.001, "negative control: at a probe's rate"
