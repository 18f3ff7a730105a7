"""Metrics, probes and scores of the user's own in ``papa.measure``."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from transformers import BertConfig, BertForSequenceClassification
from transformers.utils import ModelOutput

import papa
from papa.library.encoder import Encoder
from papa.probes import features
from papa.probes.estimators import Estimator
from papa.scores.custom import CustomCode
from tests.flows.conftest import artifacts
from tests.library.conftest import Reviews
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import NAMES, SHARP, rows

quick_measure = partial(
    papa.measure,
    substitutes=["zeros"],
    orders=["first_to_last"],
    keep=[1, 0],
    probe_seeds=[0, 1],
    progress=False,
)
TASK = papa.Task(text="review", label="verdict", epochs=1)
Classifier = tuple[BertForSequenceClassification, Encoder, Reviews]


def share_right(true: np.ndarray, predicted: np.ndarray) -> float:
    return float((true == predicted).mean())


def scores(measurement: papa.Measurement, fraction: float) -> list[float]:
    frame = measurement.results
    return frame[frame["fraction"] == fraction]["score"].tolist()


@pytest.mark.unchecked
def test_a_metric_may_be_a_function(encoder: Encoder, reviews: Reviews) -> None:
    seeds = [0, 1, 2]
    by_name, custom, balanced = (
        quick_measure(encoder, reviews, task=replace(TASK, metric=metric), probe_seeds=seeds)
        for metric in ("accuracy", share_right, balanced_accuracy_score)
    )
    assert scores(custom, 1) == scores(by_name, 1)
    assert scores(balanced, 1) != scores(by_name, 1), "negative control: another metric"
    for name in ("mean", "one_answer"):
        assert custom.summary[name].tolist() == pytest.approx(by_name.summary[name].tolist()), name
    both = custom.summary, by_name.summary
    width, known = (summary["high"] - summary["low"] for summary in both)
    assert (width < known).all(), "nothing is assumed of what examples do not show"
    assert set(custom.results["metric"]) == {"custom:share_right"}
    assert balanced.summary["high"].max() <= 1, "scikit-learn's have a range"


@pytest.mark.unchecked
def test_an_estimator_is_fitted_on_means_over_tokens(
    encoder: Encoder, reviews: Reviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "WINDOW_ROWS", 20)
    probe = LogisticRegression(C=0.5)
    measurement = quick_measure(encoder, reviews, task=replace(TASK, probe=probe))

    def fitted() -> list[float]:
        sides = []
        for frame in reviews.values():
            states = papa.features(encoder, frame, text="review", progress=False)
            means = [states_of_text.mean(0).flatten().numpy() for states_of_text in states]
            sides.append((np.stack(means), frame))
        (inputs, train), (validation_inputs, validation) = sides
        classifier = LogisticRegression(C=0.5).fit(inputs, train["verdict"])
        return [float(classifier.score(validation_inputs, validation["verdict"]))] * 2

    assert scores(measurement, 1) == pytest.approx(fitted())
    with papa.replaced(encoder, np.zeros((2, 12)), substitute="zeros"):
        assert scores(measurement, 0) == pytest.approx(fitted())
    by_papas_probe = quick_measure(encoder, reviews, task=TASK)
    assert scores(measurement, 1) != scores(by_papas_probe, 1), "negative control"
    assert not hasattr(probe, "coef_"), "copies are fitted"


def test_words_have_a_prediction_each(encoder: Encoder) -> None:
    data = {"words": [[*"abc"], [*"ab"]] * 6, "tags": [[*"NVN"], [*"NV"]] * 6}
    splits = {"train": data, "validation": data}
    task = papa.Task(words="words", label="tags", metric=share_right, probe=LogisticRegression())
    assert scores(quick_measure(encoder, splits, task=task), 1) == [1.0, 1.0]


def right(outputs: ModelOutput, batch: Mapping[str, object]) -> torch.Tensor:
    return (outputs.logits.argmax(1) == batch["labels"]).float()


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    """A model with a head of its own, which has the classes in the other order than the task."""
    torch.manual_seed(0)
    labels = {"id2label": dict(enumerate(NAMES[::-1])), "label2id": {NAMES[1]: 0, NAMES[0]: 1}}
    model = BertForSequenceClassification(BertConfig.from_dict(SHARP | labels)).eval()
    encoder = papa.load_encoder(with_tokenizer(model, tmp_path / "model"), slots=16, device="cpu")
    data = {"train": pandas.DataFrame(rows(48, 1)), "validation": pandas.DataFrame(rows(48, 2))}
    return model, encoder, data


def test_a_score_of_outputs_is_that_of_fidelity(classifier: Classifier) -> None:
    model, encoder, data = classifier

    native = papa.Task(head="native")
    custom = quick_measure(encoder, data, task=replace(native, score=right))
    by_name = quick_measure(encoder, data, task=native)
    for fraction in (1, 0):
        assert scores(custom, fraction) == pytest.approx(scores(by_name, fraction))
    assert (custom.summary["low"] > by_name.summary["low"]).all(), "of a score without a unit"
    texts = data["validation"]
    batch = encoder.tokenizer(texts["text"].tolist(), padding=True, return_tensors="pt")
    batch["labels"] = torch.tensor([NAMES[::-1].index(label) for label in texts["label"]])
    fidelity = papa.fidelity(
        model, [dict(batch)], heads=np.zeros((2, 4)), substitute="zeros", score=right
    )["value"]
    assert scores(custom, 1) == pytest.approx([fidelity["score_before"]] * 2)
    assert scores(custom, 0) == pytest.approx([fidelity["score_after"]] * 2)
    certainty = replace(native, label=None, score=lambda outputs, batch: outputs.logits.amax(1))
    sure = quick_measure(encoder, data, task=certainty)
    assert scores(sure, 1) != scores(custom, 1)
    with pytest.raises(papa.PapaError, match="number for each text"):
        quick_measure(
            encoder, data, task=replace(native, score=lambda outputs, batch: outputs.logits)
        )


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    source = "def score(true, predicted):\n    return float((true == predicted).mean())\n"
    (tmp_path / "papa_own_metric.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("papa_own_metric")
    sys.modules.pop("papa_own_metric")


def test_stores_know_code_by_module(encoder: Encoder, module: ModuleType, tmp_path: Path) -> None:
    store = tmp_path / "store"
    text = {"text": ["good", "bad", "fine", "poor"] * 8, "label": ["yes", "no"] * 16}
    data = {"train": text, "validation": text}

    def stored_probes(metric: object) -> set[str]:
        task = papa.Task(epochs=1, metric=metric)
        quick_measure(encoder, data, task=task, train_rows=16, validation_rows=16, store=store)
        return set(artifacts(store, "probe"))

    first = stored_probes(module.score)
    assert stored_probes(module.score) == first
    usual = stored_probes("accuracy")
    assert len(usual) == 2 * len(first), "a metric by its name is another"
    file = Path(str(module.__file__))
    file.write_text(file.read_text().replace(".mean()", ".mean() / 2"))
    assert len(stored_probes(importlib.reload(module).score)) == 3 * len(first)
    with pytest.raises(papa.PapaError, match="store"):
        stored_probes(lambda true, predicted: 0.0)


def test_what_an_estimator_is_made_from_is_known_too(module: ModuleType) -> None:
    """A part of a pipeline is another once its module is; what is opaque is not known at all."""
    file = Path(str(module.__file__))
    code = "from sklearn.base import BaseEstimator\nclass Half(BaseEstimator):\n    factor = 0.5\n"
    file.write_text(code)
    reloaded = importlib.reload(module).Half

    def digest(estimator: Estimator) -> str | None:
        return CustomCode(probe=estimator).digest

    first = digest(make_pipeline(reloaded(), LogisticRegression()))
    assert first == digest(make_pipeline(reloaded(), LogisticRegression()))
    assert first != digest(make_pipeline(reloaded(), LogisticRegression(C=2.0)))
    file.write_text(file.read_text().replace("0.5", "0.25"))
    assert digest(make_pipeline(importlib.reload(module).Half(), LogisticRegression())) != first
    assert digest(GaussianNB(priors=np.arange(2000.0))) is None
