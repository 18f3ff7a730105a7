"""A decoder's native head in a study: a small GPT-2 that copies what stood 23 tokens before."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import papa
from papa.errors import PapaError
from papa.models.reference import EMBEDDED
from tests.finished import Scored, described, score_study
from tests.heads.copying import HALF, HEADS, repeated, trained_copier
from tests.tasks.copier import METRIC, TASK

pytestmark = pytest.mark.unchecked

STREAMING = [{"kind": "streaming", "sinks": 1, "recent": recent} for recent in (24, 23)]
"""The copier's heads look 23 tokens back: the first sees that token, the second does not."""
DESIGN: dict[str, object] = {
    "substitutes": ["average", "relative", "zeros", *STREAMING],
    "orders": ["first_to_last"],
    "keep": [1, 0.5, 0],
}
ALL = {layer: range(HEADS) for layer in range(2)}
BOTH = [{"metric": metric, **TASK} for metric in (METRIC, "agreement")]


def finished(
    copier: Path, to: Path, settings: dict[str, object], tasks: list[dict[str, object]] = BOTH
) -> Scored:
    """A study of the copier, some of whose settings are not those of ``DESIGN``."""
    document = described(copier / "model", *tasks, probe_seeds=[0, 1, 2])
    return score_study(document | DESIGN | settings, copier, to)


@pytest.fixture(scope="module")
def study(copier: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    return finished(copier, tmp_path_factory.mktemp("study") / "store", {})


def score(study: Scored, metric: str, constants: str, fraction: float) -> float:
    rows = study[2]
    selected = (rows["task"] == metric) & (rows["constants"] == constants)
    return float(rows[selected & (rows["fraction"] == fraction)]["score"].mean())


def test_agreement_is_with_the_unchanged_decoder(study: Scored) -> None:
    """Heads that look at positions may be constant, but not zero."""
    constant = [score(study, "agreement", name, 0) for name in ("zeros", "relative", "average")]
    assert score(study, "agreement", "average", 1) == 1
    assert constant[0] < 0.1 < 0.6 < constant[1] < constant[2]


@torch.no_grad()
def scored_by_stock(heads: Any, substitute: Any = "average", tokens: int = 2 * HALF) -> float:
    """The stock model's score on validation texts, with heads constant by training texts."""
    model = trained_copier().eval()
    ids = repeated(10_001)
    data = [{"input_ids": repeated(20_000)[:, :tokens]}]
    with papa.ablated(model, heads, substitute=substitute, data=data):
        return -float(model(input_ids=ids, labels=ids).loss)


def test_a_decoder_without_a_task_predicts_the_next_token(copier: Path) -> None:
    encoder = papa.load_encoder(copier / "model", slots=2 * HALF)
    texts = {split: (copier / f"{split}.jsonl").read_text() for split in ("train", "validation")}
    data = {
        split: {"text": [json.loads(line)["text"] for line in lines.splitlines()]}
        for split, lines in texts.items()
    }
    summary = papa.measure(
        encoder, data, orders=["first_to_last"], keep=[1], progress=False
    ).summary
    assert summary["metric"].tolist() == [METRIC]
    assert summary["mean"][0] == pytest.approx(scored_by_stock([]), abs=1e-4)


def test_relative_is_scored_on_texts_longer_than_its_average(copier: Path, tmp_path: Path) -> None:
    short = HALF + 4
    task = {"metric": METRIC, **TASK, "slots": short}
    to = tmp_path / "store"
    design = {"substitutes": ["relative", STREAMING[0]], "keep": [1, 0]}
    long_study = finished(copier, to, design, [task | {"validation_slots": 2 * HALF}])
    assert score(long_study, METRIC, "relative", 1) == pytest.approx(scored_by_stock([]), abs=1e-4)
    expected, longer = (scored_by_stock(ALL, "relative", tokens) for tokens in (short, 2 * HALF))
    assert score(long_study, METRIC, "relative", 0) == pytest.approx(expected, abs=1e-4)
    assert abs(expected - longer) > 1e-3, "an average of longer texts is another"
    cut = finished(copier, to, {"substitutes": ["relative"], "keep": [1]}, [task])
    assert abs(score(cut, METRIC, "relative", 1) - score(long_study, METRIC, "relative", 1)) > 0.1


def test_scores_are_those_of_the_ablated_stock_model(study: Scored) -> None:
    """Streaming of two kinds, of which one keeps the token that the model copies."""
    original = score(study, METRIC, "average", 1)
    assert original == pytest.approx(scored_by_stock([]), abs=1e-4)
    labels = ("average", "relative", "zeros", "streaming:1:24", "streaming:1:23")
    for label, substitute in zip(labels, [*labels[:3], *STREAMING], strict=True):
        expected = pytest.approx(scored_by_stock(ALL, substitute), abs=1e-4)
        assert score(study, METRIC, label, 0) == expected, label
    assert score(study, METRIC, "streaming:1:24", 0) > original - 0.5
    assert score(study, METRIC, "streaming:1:23", 0) < original - 1


def test_heads_by_lambda_are_missed_less_than_the_others(copier: Path, tmp_path: Path) -> None:
    settings = {"substitutes": ["average"], "orders": ["lambda", "reversed:lambda"]}
    settings |= {"keep": [1, 0.5], "ranking": {"learning_rate": 0.05, "epochs": 5}}
    steps, _, table, _ = finished(copier, tmp_path / "store", settings)
    assert [step.stage.name for step in steps.steps].count("train_lambda") == 1, "of both metrics"
    selected = (table["task"] == METRIC) & (table["fraction"] == 0.5)
    loss = table[selected].groupby("order")["score"].mean()
    assert loss["lambda"] > loss["reversed:lambda"] + 0.02


NEAREST = {"kind": "text", "metric": "nearest_10"}
MISFITS: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({"slots": 64}, {}, "slots 64"),
    ({"validation_slots": 64}, {"substitutes": ["relative"]}, "slots 64"),
    ({"kind": "mlm"}, {"substitutes": ["average"]}, "causal"),
    ({}, {"encoders": [EMBEDDED]}, "encoder"),
    ({}, {"unit": "kv_group"}, "unit: "),
    (NEAREST, {"encoders": [EMBEDDED], "substitutes": ["streaming"]}, "'streaming'"),
]


@pytest.mark.parametrize(("task", "settings", "expected"), MISFITS)
def test_a_model_that_does_not_fit_is_refused(
    copier: Path,
    tmp_path: Path,
    task: dict[str, object],
    settings: dict[str, object],
    expected: str,
) -> None:
    entry = {"metric": "agreement", **TASK, **task}
    with pytest.raises(PapaError, match=expected):
        finished(copier, tmp_path / "store", settings, [entry])
