"""``papa.measure`` gives the scores of the same study in a file; custom orders in every form."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoModel

import papa
from papa.library.encoder import Encoder
from papa.ranking.external_scores import named_orders
from papa.ranking.head_scores import HeadScores
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from tests.finished import finish_study
from tests.flows.conftest import invoke, write_study
from tests.library.conftest import SLOTS, Reviews

pytestmark = pytest.mark.unchecked

TASK = papa.Task(text="review", label="verdict", learning_rate=5e-4, epochs=1, name="mine")
KEEP = [1, 0.5, 0]
SEEDS = [0, 1]
SCORES = np.arange(6.0).reshape(2, 3)[::-1].copy()  # the second layer first
HEADS = [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
quick_measure = partial(papa.measure, probe_seeds=SEEDS, progress=False)


@pytest.mark.server
def test_a_study_in_memory_has_the_scores_of_a_study_in_a_file(
    encoder: Encoder, shallow: str, reviews: Reviews, tmp_path: Path
) -> None:
    design = {"substitutes": ["average", "trained"], "orders": ["lambda", "random"], "keep": KEEP}
    measurement = quick_measure(
        encoder,
        reviews,
        task=TASK,
        ranking_rows=32,
        substitutes=design["substitutes"],
        orders=design["orders"],
        keep=KEEP,
    )
    for split, frame in reviews.items():
        frame.to_json(tmp_path / f"{split}.jsonl", orient="records", lines=True)
    entry = {"name": "mine", "kind": "text", "metric": "accuracy", "slots": SLOTS}
    entry |= {"columns": {"text": "review", "label": "verdict"}}
    entry |= {"source": {"kind": "files", **{split: f"{split}.jsonl" for split in reviews}}}
    entry |= {"probe": {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1}}
    study = {"name": "same", "encoders": [shallow], "tasks": [entry], "ranking": {"rows": 32}}
    study |= {**design, "probe_seeds": SEEDS, "execution": {"device": "cpu"}}
    finish_study(write_study(tmp_path, study), tmp_path / "store")
    folder = tmp_path / "store" / "studies" / "same"
    ours = measurement.results_with_influence
    expected = pandas.read_parquet(folder / "results.parquet")
    assert list(ours) == list(expected)
    compared = [name for name in ours if name != "seconds"]
    pandas.testing.assert_frame_equal(ours[compared], expected[compared], check_exact=True)
    options = ("--max-drop", "30%", "--json")
    listed = invoke("heads", "same", "--store", str(tmp_path / "store"), *options)
    names = ["constant_heads", "fraction", "drop", "verdict", "heads"]
    expected = [
        [
            answer["constants"],
            answer["order"],
            *(count[name] for name in (*names, "drop_low", "drop_high")),
            answer["reason"],
        ]
        for answer in json.loads(listed.out)["answers"]
        for count in answer["counts"]
    ]
    columns = ["constants", "order", *names, "low", "high", "reason"]
    answered = measurement.heads(max_drop=0.3)[columns]
    assert json.loads(json.dumps(answered.to_numpy().tolist())) == expected
    assert answered["heads"].map(bool).tolist().count(True) >= 3
    means = ours.groupby(["constants", "fraction"])["score"].mean()
    assert means.nunique() >= 3, "negative control: cells differ"


def test_a_measurement_prints_as_its_sentences_and_tables(
    encoder: Encoder, reviews: Reviews
) -> None:
    measurement = quick_measure(encoder, reviews, task=TASK, orders=["random"], keep=[1])
    assert measurement.answers
    for printed in (repr(measurement), str(measurement)):
        assert printed.startswith(measurement.answers[0])
        assert str(measurement.table) in printed


def test_a_measurement_serves_other_calls(encoder: Encoder, reviews: Reviews) -> None:
    """Its average and its head scores are those of ``papa.average`` and ``papa.head_scores``."""
    measurement = quick_measure(encoder, reviews, task=TASK, keep=KEEP, ranking_rows=16)
    heads = measurement.head_scores
    average = papa.average(encoder, reviews["train"], text="review")
    repeated = quick_measure(
        encoder, reviews, task=TASK, substitutes=[average], orders=heads, keep=[1, 0.5]
    ).results
    results = measurement.results
    assert repeated["score"].tolist() == results[results["fraction"] > 0]["score"].tolist()
    scores = partial(papa.head_scores, encoder, reviews, task=TASK, rows=16, progress=False)
    for constants in (average, "average"):
        pandas.testing.assert_frame_equal(scores(substitute=constants), heads)
    by_zeros = scores(substitute="zeros", ranking_seeds=[1])
    assert (by_zeros["score"] - heads["score"]).abs().max() > 1e-5, "negative control"
    assert by_zeros["low"].isna().all(), "one seed has no interval"


OWN_ANSWERS = papa.Task(text="review", label=None, metric="cosine", head="native")


@pytest.mark.parametrize(
    ("task", "method"), [(TASK, "lambda"), (OWN_ANSWERS, "effect")], ids=["probe", "native head"]
)
def test_the_default_method_of_an_encoder_follows_what_answers(
    encoder: Encoder, reviews: Reviews, task: papa.Task, method: str
) -> None:
    measurement = quick_measure(
        encoder, reviews, task=task, keep=[1, 0.5], ranking_rows=8, ranking_seeds=[0]
    )
    scores = papa.head_scores(
        encoder, reviews, task=task, rows=8, ranking_seeds=[0], progress=False
    )
    assert set(scores["method"]) == {method} == set(measurement.results["order"])


def test_a_study_file_finds_what_is_stored(encoder: Encoder, shallow: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    rows = {"train_rows": 40, "validation_rows": 30}
    design = {"keep": [1, 0.5], "ranking_seeds": [0]}
    quick_measure(
        encoder,
        "reviews",
        store=store.root,
        train_rows=40,
        validation_rows=30,
        ranking_rows=16,
        keep=[1, 0.5],
        ranking_seeds=[0],
    )
    task = {"name": "reviews", "slots": SLOTS, **rows}

    def missing_stages(seeds: list[int]) -> set[str]:
        study = {"name": "same", "encoders": [shallow], "tasks": [task], "ranking": {"rows": 16}}
        study |= {**design, "probe_seeds": seeds}
        spec = resolve_study(study, folder=tmp_path, origin="test")
        steps = build_pipeline(resolve_inputs(spec).inputs()).steps
        return {step.stage.name for step in steps if not step.is_complete(store)}

    assert missing_stages(SEEDS) == {"aggregate"}, "every cell is there"
    assert missing_stages([2, 3]) == {"baseline", "probe", "aggregate"}


def test_an_encoder_in_memory_has_no_store(encoder: Encoder, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(encoder.path)
    in_memory = papa.load_encoder(model, encoder.tokenizer, slots=SLOTS)
    with pytest.raises(papa.PapaError, match="store"):
        papa.measure(in_memory, "reviews", store=tmp_path / "store", progress=False)


@pytest.mark.parametrize(
    "order",
    [
        SCORES,
        torch.tensor(SCORES),
        SCORES.tolist(),
        HeadScores(SCORES[None]).frame("mine").sample(frac=1, random_state=0),
        HEADS,
        HEADS[:3],
        lambda layer, head: -layer,
    ],
    ids=["array", "tensor", "lists", "frame", "heads", "first heads", "function"],
)
def test_every_form_is_the_same_order(order: object) -> None:
    study_orders = named_orders(["lambda", order, order], 2, 3)
    assert study_orders["orders"] == ["lambda", "scores:custom", "scores:custom 2"]
    for entry in study_orders["scores"]:
        assert papa.constant_heads(entry["values"], keep=0) == tuple(HEADS)
