"""λ of a study whose task is the model's own use: trained on it, and with no probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
from papa.probes.own import opened_own
from papa.ranking.learned import train_lambda
from papa.storage.store import Store
from papa.study.stages.rank import read_head_scores
from papa.study.stages.tokenise import open_corpus
from papa.study.step import Step
from tests.finished import described, score_study
from tests.models.lower import with_tokenizer
from tests.study.test_own import LABELS, SMALL, written

pytestmark = pytest.mark.unchecked
RATE = 0.05


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("data"), 48)


def ranked(data: Path, folder: Path, encoder: str, **task: Any) -> tuple[Step, Store]:
    probe = {"learning_rate": RATE, "batch_size": 16, "epochs": 3}
    columns = {"text": "text", "label": "label"}
    entry = {"kind": "text", "head": "own", "columns": columns, "probe": probe, **task}
    entry = {key: value for key, value in entry.items() if value is not None}
    document = described(encoder, entry, orders=["lambda"], fractions=[0.5])
    steps, store, *_ = score_study(document, data, folder)
    (rank,) = (step for step in steps.steps if step.stage == "rank")
    return rank, store


def lambdas(found: tuple[Step, Store]) -> np.ndarray:
    rank, store = found
    return read_head_scores("lambda", {0: rank.reference(store)}).by_seed[0]


def retrained(found: tuple[Step, Store], rate: float) -> tuple[list[float], np.ndarray]:
    rank, store = found
    opened = model, _ = opened_own(rank["task"], rank["encoder"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    losses = list[float]()
    lambdas = train_lambda(
        opened,
        ConstantMatrices.load(rank["constants"].folder(store)),
        open_corpus(rank["corpus"].reference(store)),
        rank["task"],
        rank["ranking"].model_copy(update={"learning_rate": rate}),
        on_epoch=lambda epoch, loss: losses.append(loss[0]),
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return losses, lambdas.numpy()


TEXT = {"columns": {"text": "text"}}
KINDS: list[tuple[type[PreTrainedModel], dict[str, Any]]] = [
    (BertModel, {"metric": "cosine"}),
    (BertForSequenceClassification, {"metric": "accuracy"}),
    (BertForSequenceClassification, {"metric": "agreement", **TEXT}),
    (BertForMaskedLM, {"kind": "mlm", "metric": "negative_log_perplexity", **TEXT}),
]


@pytest.mark.parametrize(("family", "task"), KINDS)
def test_the_loss_at_the_mix_of_lambda_falls(
    family: Any, task: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    sharp = family(BertConfig(**{**SMALL, **LABELS, "initializer_range": 0.35}))
    model = str(with_tokenizer(sharp, tmp_path / "model"))
    found = ranked(data, tmp_path / "store", model, **task)
    losses, own = retrained(found, RATE)
    assert np.array_equal(own[-1], lambdas(found))
    assert losses[-1] < losses[0]
    still, _ = retrained(found, 1e-9)
    assert max(still) - min(still) < 0.1 * (losses[0] - losses[-1])


def test_the_rate_that_nobody_names_moves_the_one_head_that_says_something(
    data: Path, tmp_path: Path
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
    task = {"metric": "cosine", **TEXT}
    found = lambdas(ranked(data, tmp_path / "store", encoder, **task, probe=None))
    others = np.delete(found.ravel(), np.ravel_multi_index(planted, found.shape))
    assert found[planted] > 0.54
    assert np.abs(others - 0.5).max() < 1e-6
    slow = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
    still = lambdas(ranked(data, tmp_path / "slow", encoder, **task, probe=slow))
    assert abs(still[planted] - 0.5) < 0.001, "negative control: at a probe's rate"
