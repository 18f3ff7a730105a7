"""A decoder's own head in a study, run in this process: a small GPT-2 that copies what stands 23
tokens before.
"""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

import papa
from papa.attention.constants import ConstantMatrices
from papa.encoders.reference import EMBEDDED
from papa.errors import PapaError
from papa.study.stages.constants import read_distances
from papa.study.stages.rank import read_head_scores
from tests.ablation.copying import HALF, HEADS, TOKENS, repeated, trained_copier
from tests.finished import Scored, score_study

pytestmark = pytest.mark.unchecked

TASK: dict[str, Any] = {
    "kind": "causal",
    "head": "own",
    "columns": {"text": "text"},
    "slots": 2 * HALF,
    "source": {"kind": "files", "train": "train.jsonl", "validation": "validation.jsonl"},
}
STREAMING: list[dict[str, Any]] = [
    {"kind": "streaming", "sinks": 1, "recent": 24},
    {"kind": "streaming", "sinks": 1, "recent": 23},
]
"""The copier's heads look 23 tokens back: the first sees that token, the second does not."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a tokenizer of its words, and text for it."""
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


def finished(folder: Path, to: Path, **parts: Any) -> Scored:
    metrics = ("negative_log_perplexity", "agreement")
    document = {
        "name": "decoder",
        "encoders": [str(folder / "model")],
        "tasks": [{"name": metric, "metric": metric, **TASK} for metric in metrics],
        "constants": ["average", "relative", "zeros", *STREAMING],
        "orders": ["first_to_last"],
        "fractions": [1, 0.5, 0],
        **parts,
    }
    return score_study(document, folder, to)


@pytest.fixture(scope="module")
def study(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Scored:
    return finished(folder, tmp_path_factory.mktemp("study") / "store")


def score(study: Scored, metric: str, constants: str, fraction: float) -> float:
    rows = study[2]
    of = (rows["task"] == metric) & (rows["constants"] == constants)
    return float(rows[of & (rows["fraction"] == fraction)]["score"].mean())


@torch.no_grad()
def test_scores_are_those_of_the_stock_model(study: Scored) -> None:
    ids = repeated(10_001)
    own = -float(trained_copier()(input_ids=ids, labels=ids).loss)
    metric = "negative_log_perplexity"
    assert score(study, metric, "average", 1) == pytest.approx(own, abs=1e-4)


def test_a_head_that_looks_at_positions_may_be_constant_and_may_not_be_zero(
    study: Scored,
) -> None:
    metric = "negative_log_perplexity"
    own = score(study, metric, "average", 1)
    assert score(study, metric, "average", 0) > own - 0.1
    assert score(study, metric, "relative", 0) > own - 0.1
    assert score(study, metric, "zeros", 0) < own - 2
    kept = {by: score(study, "agreement", by, 0) for by in ("average", "relative", "zeros")}
    assert score(study, "agreement", "average", 1) == 1
    assert kept["zeros"] < 0.1 < 0.6 < kept["relative"] < kept["average"]


@torch.no_grad()
def test_relative_is_scored_on_texts_longer_than_its_average(folder: Path, tmp_path: Path) -> None:
    short = HALF + 4
    metric, ids = "negative_log_perplexity", repeated(10_001)
    task = {"name": metric, "metric": metric, **TASK, "slots": short}
    found = finished(
        folder,
        tmp_path / "store",
        tasks=[task | {"validation_slots": 2 * HALF}],
        constants=["relative", STREAMING[0]],
        fractions=[1, 0],
    )
    model = trained_copier().eval()
    assert score(found, metric, "relative", 1) == pytest.approx(
        -float(model(input_ids=ids, labels=ids).loss), abs=1e-4
    )
    heads = [(layer, head) for layer in range(2) for head in range(HEADS)]
    losses = []
    for tokens in (short, 2 * HALF):
        data = [{"input_ids": repeated(20_000)[:, :tokens]}]
        with papa.ablated(model, heads, by="relative", data=data):
            losses.append(-float(model(input_ids=ids, labels=ids).loss))
    assert score(found, metric, "relative", 0) == pytest.approx(losses[0], abs=1e-4)
    assert abs(losses[0] - losses[1]) > 1e-3, "an average of longer texts is another"
    cut = finished(folder, tmp_path / "store", tasks=[task], constants=["relative"], fractions=[1])
    assert abs(score(cut, metric, "relative", 1) - score(found, metric, "relative", 1)) > 0.1


@torch.no_grad()
def test_streaming_heads_are_those_of_the_library(study: Scored) -> None:
    """Two kinds of one name, of which one keeps the token that the model copies."""
    metric, model, ids = "negative_log_perplexity", trained_copier().eval(), repeated(10_001)
    heads = [(layer, head) for layer in range(2) for head in range(HEADS)]
    for one in STREAMING:
        with papa.ablated(model, heads, by=one):
            expected = -float(model(input_ids=ids, labels=ids).loss)
        label = f"streaming:{one['sinks']}:{one['recent']}"
        assert score(study, metric, label, 0) == pytest.approx(expected, abs=1e-4)
    own = score(study, metric, "average", 1)
    assert score(study, metric, "streaming:1:24", 0) > own - 0.5
    assert score(study, metric, "streaming:1:23", 0) < own - 1


@torch.no_grad()
def test_constants_are_those_of_the_library(study: Scored) -> None:
    """Of A in all passes at once, with the stock model's own attention."""
    steps, store, *_ = study
    data = repeated(20_000)
    stock = trained_copier().eval()
    stock.set_attn_implementation("eager")
    own = torch.stack(stock(input_ids=data, output_attentions=True).attentions)
    (average,) = (step for step in steps.steps if step.stage == "average")
    (distances,) = (step for step in steps.steps if step.stage == "relative")
    constants = ConstantMatrices.load(average.folder(store), slots=2 * HALF)
    torch.testing.assert_close(constants.matrices, own.mean(1), atol=1e-6, rtol=0)
    found = read_distances(distances.reference(store), distances["encoder"])
    torch.testing.assert_close(found.ends[..., 0], own[..., 0].mean((1, 3)), atol=1e-6, rtol=0)
    at = torch.arange(2 * HALF)
    apart = (at[:, None] - at == 23) & (at > 0)
    middle = found.weights.shape[-1] // 2
    torch.testing.assert_close(
        found.weights[..., middle + 23], own[..., apart].mean((1, 3)), atol=1e-6, rtol=0
    )


def test_lambda_tells_a_head_that_looks_at_random_tokens(folder: Path, tmp_path: Path) -> None:
    """The last one: in the model as it was, it is of more use than its average."""
    planted = deepcopy(trained_copier())
    maps, width = planted.transformer.h[1].attn.c_attn.weight, planted.config.n_embd
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for last in (width, 2 * width):  # Its queries, and its keys.
            own = maps[:, last - width // HEADS : last]
            own.copy_(0.7 * torch.randn(own.shape, generator=draw))
    shutil.copytree(folder / "model", tmp_path / "planted")
    planted.save_pretrained(tmp_path / "planted")
    found = {}
    for model in (folder / "model", tmp_path / "planted"):
        steps, store, table, _ = finished(
            folder,
            tmp_path / "store",
            encoders=[str(model)],
            constants=["average"],
            orders=["lambda", "lambda_reversed"],
            fractions=[1, 0.5],
            ranking={"seeds": [0], "learning_rate": 0.05, "epochs": 5},
        )
        (rank,) = (step for step in steps.steps if step.stage == "rank")  # Of both metrics.
        found[model.name] = read_head_scores("lambda", {0: rank.reference(store)}).mean[1]
        scores = table[table["fraction"] == 0.5].groupby(["task", "order"])["score"].mean()
        loss = scores["negative_log_perplexity"]
        assert loss["lambda"] > loss["lambda_reversed"] + 0.02, model.name
    assert found["planted"].argmin() == 3
    assert found["planted"][3] < 0.4 < 0.6 < found["model"][3]


def test_measure_gives_the_rows_of_the_study(study: Scored, folder: Path, tmp_path: Path) -> None:
    decoder = papa.load_encoder(folder / "model", slots=2 * HALF)
    data = {
        split: pandas.read_json(folder / f"{split}.jsonl", lines=True)
        for split in ("train", "validation")
    }
    metric = "negative_log_perplexity"
    task = papa.Task(label=None, metric=metric, head="own", name=metric)
    found = papa.measure(
        decoder,
        data,
        task,
        constants=["average", "relative", "zeros", *STREAMING],
        orders=["first_to_last"],
        fractions=[1, 0.5, 0],
        progress=False,
    )
    rows = study[2][study[2]["task"] == metric].reset_index(drop=True)
    compared = [name for name in rows if name != "seconds"]
    pandas.testing.assert_frame_equal(found.results[compared], rows[compared], check_exact=True)
    assert found.results["score"].nunique() > 3, "negative control: cells differ"
    assert "2 layers of 4 heads, width 64, 48 slots, a decoder" in repr(decoder)
    for wrong in (None, papa.Task(head="own"), papa.Task(label=None)):
        with pytest.raises(PapaError, match="asked for the next word by its own head"):
            papa.measure(decoder, data, wrong, progress=False)
    with pytest.raises(PapaError, match="lambda, first_to_last or random"):
        papa.measure(decoder, data, task, orders=["distance"], progress=False)


@pytest.mark.parametrize(
    ("task", "parts", "said"),
    [
        ({"slots": 64}, {}, "has slots 64, but encoder"),
        ({"columns": {"text": "text", "label": "text"}}, {}, "reads plain text alone: remove"),
        ({"columns": {"text": "text", "text_pair": "text"}}, {}, "remove columns.text_pair"),
        ({"head": "probe"}, {}, "answered by a model's own head: set head: own"),
        ({"metric": "accuracy"}, {}, "is scored by negative_log_perplexity, agreement"),
        ({"kind": "mlm"}, {"constants": ["average"]}, "is a decoder: take kind: causal"),
        ({}, {"constants": ["next"]}, "constants: next ones look ahead"),
        ({}, {"encoders": [EMBEDDED]}, "is an encoder: take kind: mlm or text"),
        (
            {"kind": "text", "metric": "nearest_10"},
            {"encoders": [EMBEDDED], "constants": ["streaming"]},
            "'streaming' is for decoders, and 'embedded/all-MiniLM-L6-v2' is an encoder",
        ),
        (
            {},
            {"constants": [{"kind": "average", "recent": 3}]},
            "recent belongs to kind 'streaming'",
        ),
        ({}, {"constants": [{"kind": "streaming", "recent": 0}]}, "recent"),
        (
            {"slots": 32, "validation_slots": 2 * HALF},
            {},
            "average is read by slot, and task t has 32 slots and validation_slots 48",
        ),
        (
            {"validation_slots": 64},
            {"constants": ["relative"]},
            "has slots 64, but encoder",
        ),
        ({"kind": "mlm", "validation_slots": 64}, {}, "validation_slots is for tasks of kind"),
        ({}, {"orders": ["distance"]}, "orders: distance is not computed of decoders"),
    ],
)
def test_what_no_decoder_can_be_asked_is_one_sentence(
    task: dict[str, Any], parts: dict[str, Any], said: str, folder: Path, tmp_path: Path
) -> None:
    entry = {"name": "t", "metric": "agreement", **TASK, **task}
    with pytest.raises(PapaError) as error:
        finished(folder, tmp_path / "store", **{"tasks": [entry], **parts})
    assert said in str(error.value)
