"""λ of a native head in a study: at the default rate, heads that say something move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
)

from papa.tasks.head_scores import read_head_scores
from tests.finished import described, score_study
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import SHARP, write_rows

pytestmark = pytest.mark.unchecked
COSINE = {"kind": "text", "head": "native", "columns": {"text": "text"}, "metric": "cosine"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data"), 48)


def trained_lambda(data: Path, to: Path, encoder: Path, task: dict[str, object]) -> np.ndarray:
    document = described(encoder, task, orders=["lambda"], keep=[0.5])
    study = score_study(document, data, to)
    (step,) = (step for step in study.steps.steps if step.stage.name == "train_lambda")
    return read_head_scores("lambda", {0: step.reference(study.store)}).by_seed[0]


def test_the_default_rate_moves_the_planted_head(data: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = BertModel(BertConfig.from_dict(SHARP))
    width = model.config.hidden_size // model.config.num_attention_heads
    planted = (1, 2)
    for number, layer in enumerate(model.encoder.layer):
        weight = layer.attention.output.dense.weight.data
        for head in range(model.config.num_attention_heads):
            if (number, head) != planted:
                weight[:, head * width : (head + 1) * width] = 0
    encoder = with_tokenizer(model, tmp_path / "model")
    trained = trained_lambda(data, tmp_path / "store", encoder, COSINE)
    other_shares = np.delete(trained.ravel(), np.ravel_multi_index(planted, trained.shape))
    assert trained[planted] > 0.54
    assert np.abs(other_shares - 0.5).max() < 1e-6
    slow = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
    still = trained_lambda(data, tmp_path / "slow", encoder, COSINE | {"probe": slow})
    assert abs(still[planted] - 0.5) < 0.001, "negative control: at a probe's rate"
