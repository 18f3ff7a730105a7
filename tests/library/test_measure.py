"""``papa.measure`` gives the scores of the same study in a file; head orders of one's own are the
same heads however they are given, by name in its tables.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoModel

import papa
from papa.library.encoder import Encoder
from papa.progress import Bars
from papa.ranking.external_scores import named_orders
from papa.ranking.head_scores import HeadScores
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import run_here
from tests.finished import finish_study
from tests.flows.conftest import artifacts, invoke, words, write_study
from tests.library.conftest import SLOTS

pytestmark = pytest.mark.unchecked

TASK = papa.Task(text="review", label="verdict", learning_rate=5e-4, epochs=1, name="mine")
DESIGN: dict[str, Any] = {
    "substitutes": ["average", "trained"],
    "orders": ["lambda", "random"],
    "keep": [1, 0.5, 0],
    "probe_seeds": [0, 1],
}
SCORES = np.arange(6.0).reshape(2, 3)[::-1].copy()  # the second layer first
HEADS = [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]


@pytest.mark.server
def test_a_study_in_memory_has_the_scores_of_a_study_in_a_file(
    encoder: Encoder, shallow: str, reviews: dict[str, pandas.DataFrame], tmp_path: Path
) -> None:
    measurement = papa.measure(
        encoder, reviews, task=TASK, **DESIGN, ranking_rows=32, progress=False
    )
    for split, frame in reviews.items():
        frame.to_json(tmp_path / f"{split}.jsonl", orient="records", lines=True)
    entry = {"name": "mine", "kind": "text", "metric": "accuracy", "slots": SLOTS}
    entry |= {"columns": {"text": "review", "label": "verdict"}}
    entry |= {"source": {"kind": "files", **{split: f"{split}.jsonl" for split in reviews}}}
    entry |= {"probe": {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1}}
    study = {"name": "same", "encoders": [shallow], "tasks": [entry], **DESIGN}
    study |= {"ranking": {"rows": 32}, "execution": {"device": "cpu"}}
    finish_study(write_study(tmp_path, study), tmp_path / "store")
    folder = tmp_path / "store" / "studies" / "same"
    report = html.unescape(" ".join((folder / "report.html").read_text().split()))
    ours = measurement.results_with_influence
    expected = pandas.read_parquet(folder / "results.parquet")
    assert list(ours) == list(expected)
    compared = [name for name in ours if name != "seconds"]
    pandas.testing.assert_frame_equal(ours[compared], expected[compared], check_exact=True)
    (sentence,) = (answer for answer in measurement.answers if "seeds the head order" in answer)
    assert f"all-MiniLM-L6-v2 on mine, λ: {sentence}" in report
    heads_command = "heads", "same", "--store", str(tmp_path / "store"), "--max-drop"
    heads = invoke(*heads_command, "1%")
    assert heads.code == 0, words(heads)
    often = " ".join(heads.out.split()).count(sentence)
    assert often == 2, "for each kind of constants; the random order has none"
    finished = invoke(*heads_command, "30%", "--json")
    names = ["constant_heads", "fraction", "verdict", "heads"]
    expected = [
        [answer["constants"], answer["order"], *(count[name] for name in names), answer["reason"]]
        for answer in json.loads(finished.out)["answers"]
        for count in answer["counts"]
    ]
    answered = measurement.heads(max_drop=0.3)[["constants", "order", *names, "reason"]]
    assert json.loads(json.dumps(answered.to_numpy().tolist())) == expected
    assert answered["heads"].map(bool).tolist().count(True) >= 3
    means = ours.groupby(["constants", "fraction"])["score"].mean()
    assert means.nunique() >= 3, "negative control: cells differ"


def test_a_measurement_is_a_table_a_figure_and_sentences(
    encoder: Encoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    options: dict[str, Any] = {"probe_seeds": [0, 1], "progress": False}
    ranked = {"keep": [1, 0.5, 0], "ranking_rows": 16}
    measurement = papa.measure(encoder, reviews, task=TASK, **ranked, **options)
    headings = ("Scores", "Relative drop", "Baselines")
    assert [line for line in str(measurement.table).splitlines() if line in headings] == [*headings]
    assert ">mine</text>" in measurement.plot().svg()
    assert len(measurement.answers) == 2
    assert all(single_seed_scores in str(measurement) for single_seed_scores in measurement.answers)
    assert measurement.answers[1].startswith("Over 3 seeds the head order by λ ")
    assert list(measurement.summary["constant_heads"]) == [0, 12, 24]
    # What was averaged and scored serves the other calls: the same heads, the same scores.
    average = papa.average(encoder, reviews["train"], text="review")
    supplied = {"substitutes": [average], "orders": measurement.head_scores, "keep": [1, 0.5]}
    repeated = papa.measure(encoder, reviews, task=TASK, **supplied, **options)
    frame = measurement.results
    same = repeated.results
    assert same["score"].tolist() == frame[frame["fraction"] > 0]["score"].tolist()
    few: dict[str, Any] = {"rows": 16, "progress": False}
    for constants in (average, "average"):
        scores = papa.head_scores(encoder, reviews, task=TASK, substitute=constants, **few)
        pandas.testing.assert_frame_equal(scores, measurement.head_scores)
    single_seed_scores = papa.head_scores(
        encoder, reviews, task=TASK, substitute="zeros", ranking_seeds=[1], **few
    )
    assert not np.allclose(
        single_seed_scores["score"], measurement.head_scores["score"], atol=1e-5
    ), "negative control"
    assert single_seed_scores["low"].isna().all(), "of one seed nothing is known"


def test_what_a_store_keeps_is_shared_with_every_run_of_the_study(
    encoder: Encoder, shallow: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    settings: dict[str, Any] = {"keep": [1, 0.5], "probe_seeds": [0, 1]}
    rows = {"train_rows": 40, "validation_rows": 30}
    stages = "average", "baseline", "probe", "tokenise", "train_lambda"

    def measured(**changes: Any) -> pandas.DataFrame:
        settings_of_run = {
            "ranking_rows": 16,
            "ranking_seeds": [0],
            "store": store,
            "progress": False,
        }
        return papa.measure(
            encoder, "reviews", **rows, **settings | changes, **settings_of_run
        ).results

    def ran(**changes: Any) -> set[str]:
        """The stages of which a run of the study in a file has to compute something; they are run
        but for the last.
        """
        study = {"name": "same", "encoders": [shallow], **settings, **changes}
        study |= {"tasks": [{"name": "reviews", "slots": SLOTS, **rows}]}
        study |= {"ranking": {"rows": 16}, "ranking_seeds": [0]}
        spec = resolve_study(study, folder=tmp_path, origin="test")
        steps = build_pipeline(resolve_inputs(spec).inputs()).steps
        missing = {step.stage.name for step in steps if not step.is_complete(Store(store))}
        run_here(steps[:-1], Store(store), spec.execution, Bars(shown=False))
        return missing

    first = measured()
    assert ran() == {"aggregate"}, "every cell is there"
    stages_of_seed = {"baseline", "probe", "aggregate"}
    assert ran(probe_seeds=[2, 3]) == stages_of_seed, "negative control: other seeds are not"
    stored_artifacts = artifacts(store, *stages)
    repeated = measured(probe_seeds=[2, 3])
    assert artifacts(store, *stages) == stored_artifacts
    assert sorted(set(repeated["seed"])) == [2, 3]
    pandas.testing.assert_frame_equal(measured(), first, check_exact=True)
    measured(keep=[1, 0])
    assert len(artifacts(store, *stages)) == len(stored_artifacts) + 2, (
        "one more probe for each seed"
    )


def test_a_store_knows_encoders_by_their_files(
    encoder: Encoder, shallow: str, tmp_path: Path
) -> None:
    model = AutoModel.from_pretrained(shallow)
    in_memory = papa.load_encoder(model, encoder.tokenizer, slots=SLOTS)
    with pytest.raises(papa.PapaError, match="leave out store"):
        papa.measure(in_memory, "reviews", store=tmp_path / "store", progress=False)
    few: dict[str, Any] = {
        "substitutes": ["zeros"],
        "orders": ["first_to_last"],
        "probe_seeds": [0],
    }
    few |= {"keep": [1, 0], "train_rows": 24, "validation_rows": 16, "progress": False}
    measurements = [
        papa.measure(measured_encoder, "reviews", **few)
        for measured_encoder in (encoder, in_memory)
    ]
    assert measurements[0].results["score"].tolist() == measurements[1].results["score"].tolist()
    assert measurements[0].head_scores.empty


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
def test_every_form_is_the_same_order(order: Any) -> None:
    named = named_orders(["lambda", order, order], 2, 3)
    assert named["orders"] == ["lambda", "scores:custom", "scores:custom 2"]
    for entry in named["scores"]:
        assert papa.constant_heads(entry["values"], keep=0) == tuple(HEADS)


def test_a_measurement_knows_its_own_orders(encoder: Encoder, reviews: dict[str, Any]) -> None:
    def by_layer(layer: int, head: int) -> int:
        return layer

    orders = ["last_to_first", [(1, head) for head in range(12)], by_layer]
    options = {"keep": [1, 0.5], "probe_seeds": [0, 1], "progress": False}
    measurement = papa.measure(encoder, reviews, task=TASK, orders=orders, **options)
    half = measurement.results.query("fraction == 0.5")
    scores = half.groupby("order", sort=False)["score"].agg(list)
    assert scores.index.tolist() == ["last_to_first", "scores:custom", "scores:by_layer"]
    assert scores["scores:custom"] == scores["last_to_first"] != scores["scores:by_layer"]
    assert "scores of by_layer" in str(measurement.table)


def test_warnings_of_papa_check_are_among_the_answers(
    encoder: Encoder, reviews: dict[str, pandas.DataFrame]
) -> None:
    rows = reviews["train"].head(12)
    overlapping = pandas.concat([rows.head(5), reviews["validation"].head(7)])
    data = {"train": rows, "validation": overlapping}
    measurement = papa.measure(encoder, data, task=TASK, keep=[1], probe_seeds=[0], progress=False)
    assert any("5 of 12 validation rows" in answer for answer in measurement.answers)
    assert "5 of 12 validation rows" in str(measurement)
    apart = {**data, "validation": reviews["validation"].head(12)}
    measurement = papa.measure(encoder, apart, task=TASK, keep=[1], probe_seeds=[0], progress=False)
    assert not any("12 validation rows" in answer for answer in measurement.answers)
