"""A decoder's native head in a study: a small GPT-2 that copies what stood 23 tokens before."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

import papa
from papa.errors import PapaError
from papa.models.reference import EMBEDDED
from papa.tasks.rank import read_head_scores
from tests.finished import Scored, described, score_study
from tests.heads.copying import HALF, HEADS, TOKENS, repeated, trained_copier

pytestmark = pytest.mark.unchecked

TASK: dict[str, Any] = {
    "kind": "causal",
    "head": "native",
    "columns": {"text": "text"},
    "slots": 2 * HALF,
}
STREAMING = [{"kind": "streaming", "sinks": 1, "recent": recent} for recent in (24, 23)]
"""The copier's heads look 23 tokens back: the first sees that token, the second does not."""
DESIGN: dict[str, Any] = {
    "substitutes": ["average", "relative", "zeros", *STREAMING],
    "orders": ["first_to_last"],
    "keep": [1, 0.5, 0],
}
METRIC = "negative_log_perplexity"
ALL = {layer: range(HEADS) for layer in range(2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copier")
    trained_copier().save_pretrained(folder / "model")
    words = {f"w{number}": number for number in range(TOKENS)}
    tokenizer = Tokenizer(WordLevel(words))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "model")
    for split, seed in (("train", 20_000), ("validation", 10_001)):
        texts = [" ".join(f"w{number}" for number in row) for row in repeated(seed).tolist()]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{split}.jsonl").write_text(lines)
    return folder


def finished(folder: Path, to: Path, *tasks: dict[str, Any], **parts: Any) -> Scored:
    """A study of the copier, of both metrics unless it has tasks of its own."""
    both = [{"metric": metric, **TASK} for metric in (METRIC, "agreement")]
    design = DESIGN | {"encoders": [str(folder / "model")], "probe_seeds": [0, 1, 2]} | parts
    return score_study(described("", *(tasks or both), **design), folder, to)


@pytest.fixture(scope="module")
def study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    return finished(folder, tmp_path_factory.mktemp("study") / "store")


def score(study: Scored, metric: str, constants: str, fraction: float) -> float:
    rows = study[2]
    of = (rows["task"] == metric) & (rows["constants"] == constants)
    return float(rows[of & (rows["fraction"] == fraction)]["score"].mean())


def test_a_head_of_positions_may_be_constant_and_may_not_be_zero(study: Scored) -> None:
    own, *found = (
        score(study, METRIC, by, fraction)
        for by, fraction in (("average", 1), ("average", 0), ("relative", 0), ("zeros", 0))
    )
    assert min(found[:2]) > own - 0.1
    assert found[2] < own - 2
    kept = {by: score(study, "agreement", by, 0) for by in ("average", "relative", "zeros")}
    assert score(study, "agreement", "average", 1) == 1
    assert kept["zeros"] < 0.1 < 0.6 < kept["relative"] < kept["average"]


@torch.no_grad()
def scored_by_stock(by: Any = None, tokens: int = 2 * HALF) -> float:
    """What the stock model scores, with all heads constant by what training texts say."""
    model, ids = trained_copier().eval(), repeated(10_001)
    data = [{"input_ids": repeated(20_000)[:, :tokens]}]
    with papa.ablated(model, ALL, substitute=by, data=data) if by else nullcontext():
        return -float(model(input_ids=ids, labels=ids).loss)


def test_relative_is_scored_on_texts_longer_than_its_average(folder: Path, tmp_path: Path) -> None:
    short = HALF + 4
    task, to = {"metric": METRIC, **TASK, "slots": short}, tmp_path / "store"
    of = {"substitutes": ["relative", STREAMING[0]], "keep": [1, 0]}
    found = finished(folder, to, task | {"validation_slots": 2 * HALF}, **of)
    assert score(found, METRIC, "relative", 1) == pytest.approx(scored_by_stock(), abs=1e-4)
    expected, longer = (scored_by_stock("relative", tokens) for tokens in (short, 2 * HALF))
    assert score(found, METRIC, "relative", 0) == pytest.approx(expected, abs=1e-4)
    assert abs(expected - longer) > 1e-3, "an average of longer texts is another"
    cut = finished(folder, to, task, substitutes=["relative"], keep=[1])
    assert abs(score(cut, METRIC, "relative", 1) - score(found, METRIC, "relative", 1)) > 0.1


def test_scores_are_those_of_the_stock_model_and_of_the_librarys_constants(study: Scored) -> None:
    """Streaming of two kinds, of which one keeps the token that the model copies."""
    own = score(study, METRIC, "average", 1)
    assert own == pytest.approx(scored_by_stock(), abs=1e-4)
    labels = ("average", "relative", "zeros", "streaming:1:24", "streaming:1:23")
    for label, one in zip(labels, [*labels[:3], *STREAMING], strict=True):
        expected = pytest.approx(scored_by_stock(one), abs=1e-4)
        assert score(study, METRIC, label, 0) == expected, label
    assert score(study, METRIC, "streaming:1:24", 0) > own - 0.5
    assert score(study, METRIC, "streaming:1:23", 0) < own - 1


def test_heads_by_lambda_are_missed_less_than_the_others(folder: Path, tmp_path: Path) -> None:
    design = {"substitutes": ["average"], "orders": ["lambda", "reversed:lambda"]}
    how = {"keep": [1, 0.5], "ranking": {"learning_rate": 0.05, "epochs": 5}, "ranking_seeds": [0]}
    steps, _, table, _ = finished(folder, tmp_path / "store", **design, **how)
    assert [step.stage.name for step in steps.steps].count("train_lambda") == 1, "of both metrics"
    of = (table["task"] == METRIC) & (table["fraction"] == 0.5)
    loss = table[of].groupby("order")["score"].mean()
    assert loss["lambda"] > loss["reversed:lambda"] + 0.02


def test_lambda_has_its_control_of_next_words_that_changed_places(
    folder: Path, tmp_path: Path
) -> None:
    ranking = {"rows": 12, "learning_rate": 0.05, "epochs": 2}
    how = {"substitutes": ["average"], "orders": ["lambda"], "keep": [0.5], "ranking": ranking}
    how["ranking_seeds"] = [0, 1, 2, 3, 4]
    task = {"metric": METRIC, **TASK}
    steps, _, _, found = finished(folder, tmp_path / "store", task, **how)
    true, shuffled = (
        {one["seed"]: found[one] for one in steps.steps if one.arguments.get("shuffled") == by}
        for by in (False, True)
    )
    scores = read_head_scores("lambda", true, shuffled)
    assert scores.facts([0.5])["control"] is not None
    control = read_head_scores("lambda", shuffled)
    assert np.abs(scores.by_seed - control.by_seed).max() > 1e-3


def test_scores_of_its_heads_are_what_its_loss_says(folder: Path, tmp_path: Path) -> None:
    """Effects against the library's, on the training text; Shapley values add up to all heads."""
    task = {"metric": METRIC, **TASK}
    parts: dict[str, Any] = {"substitutes": ["zeros"], "keep": [0.5]}
    parts |= {"orders": ["effect", "gradient", "greedy", "shapley"]}
    parts |= {"ranking": {"evaluations": 40}, "ranking_seeds": [0]}
    steps, _, _, found = finished(folder, tmp_path / "store", task, **parts)
    methods = {
        step: step.arguments.get("methods", ("effect",))
        for step in steps.steps
        if step.stage.name in ("score_heads", "sweep_heads")
    }
    scores = {
        method: read_head_scores(method, {0: found[step]}).mean
        for step, names in methods.items()
        for method in names
    }
    model, data = trained_copier().eval(), [{"input_ids": repeated(20_000)}]
    frame = papa.head_scores(model, data, method="effect", progress=False)
    expected = frame["score"].to_numpy().reshape(2, HEADS)
    np.testing.assert_allclose(scores["effect"], expected, atol=1e-4)
    assert expected.std() > 0.01
    lost = papa.fidelity(model, data, heads=ALL)["value"]["loss_difference"]
    assert scores["shapley"].sum() == pytest.approx(lost, abs=1e-4)
    assert sorted(scores["greedy"].ravel()) == [*range(2 * HEADS)]
    assert scores["gradient"].min() > 0


def test_measure_gives_the_rows_of_the_study(study: Scored, folder: Path, tmp_path: Path) -> None:
    decoder = papa.load_encoder(folder / "model", slots=2 * HALF)
    data = {
        split: pandas.read_json(folder / f"{split}.jsonl", lines=True)
        for split in ("train", "validation")
    }
    task = papa.Task(label=None, metric=METRIC, head="native", name=METRIC)
    found = papa.measure(decoder, data, task=task, **DESIGN, progress=False)
    rows = study[2][study[2]["task"] == METRIC].reset_index(drop=True)
    compared = [name for name in rows if name != "seconds"]
    measured = found.results_with_influence
    pandas.testing.assert_frame_equal(measured[compared], rows[compared], check_exact=True)
    assert found.results["score"].nunique() > 3, "negative control: cells differ"
    for wrong in (None, papa.Task(head="native"), papa.Task(label=None)):
        with pytest.raises(PapaError, match=METRIC):
            papa.measure(decoder, data, task=wrong, progress=False)
    with pytest.raises(PapaError, match="self_lambda"):
        papa.measure(decoder, data, task=task, orders=["self_lambda"], progress=False)


NEAREST = {"kind": "text", "metric": "nearest_10"}
MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"slots": 64}, {}, "has slots 64, but encoder"),
    ({"validation_slots": 64}, {"substitutes": ["relative"]}, "has slots 64, but encoder"),
    ({"kind": "mlm"}, {"substitutes": ["average"]}, "is a decoder: take kind: causal"),
    ({}, {"encoders": [EMBEDDED]}, "is an encoder: take"),
    (
        NEAREST,
        {"encoders": [EMBEDDED], "substitutes": ["streaming"]},
        "'streaming' is for decoders",
    ),
]


def test_a_model_that_does_not_fit_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    for task, parts, said in MISFITS:
        entry = {"metric": "agreement", **TASK, **task}
        with pytest.raises(PapaError, match=said):
            finished(folder, tmp_path / "store", entry, **parts)
