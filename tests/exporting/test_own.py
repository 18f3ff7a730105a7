"""Exports of a model that a study asked by its own head: tokens stand where its users put them, and
a classifier comes along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jaxtyping
import pytest
import torch
import transformers
from transformers import AutoConfig, pipeline

import papa
from papa.ablation.substitutes import ByPosition
from papa.corpora.tokens import special_tokens_of
from papa.encoders.reference import load_tokenizer, resolve_encoder
from papa.exporting import ExportedEncoder, export_encoder
from papa.exporting.classifier import CLASSES, OwnClassifier, OwnHead
from papa.probes.own import own_answers
from papa.probes.own_model import load_own
from papa.spec import EncoderSpec
from tests.encoders.models import RANGE
from tests.exporting.conftest import Case


@pytest.mark.parametrize("texts", ["text", "pair"])
def test_embeddings_are_those_of_the_models_own_use(
    make_case: Callable[..., Case],
    texts: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    case, heads = make_case("electra", texts), make_case("electra", texts).some_heads()
    special = special_tokens_of(load_tokenizer(case.reference))
    constants = ByPosition(case.constants.matrices)
    model = load_own(case.reference, "AutoModel")
    answers = own_answers(model, case.split, special, constants, heads, embeddings=True)
    expected = torch.from_numpy(answers["embeddings"])

    def exported(positions: str) -> ExportedEncoder:
        layout, folder = replace(case.layout, positions=positions), tmp_path / positions
        export_encoder(case.reference, case.constants, heads, layout, folder, examples=case.split)
        return papa.load_exported(folder)

    def difference(states: torch.Tensor) -> float:
        mask = inputs["attention_mask"][..., None]
        return float(((states * mask).sum(1) / mask.sum(1) - expected).abs().max())

    ordinary, by_slot = exported("tokens"), exported("slots")
    inputs = case.tokens(ordinary)
    assert difference(ordinary(**inputs).last_hidden_state) <= 1e-5
    with ordinary.dense() as dense:
        assert difference(dense(**inputs)[0]) <= 1e-5
    assert difference(by_slot(**inputs).last_hidden_state) > 1e-3
    card = (tmp_path / "tokens" / "README.md").read_text()
    assert "ordinary positions, as in the study" in card


@pytest.mark.parametrize(
    ("family", "texts", "head"),
    [
        ("electra", "text", 0),
        ("albert", "text", 0),
        ("roberta", "pair", 0),
        ("electra", "words", 1),
    ],
)
def test_its_own_classifier_answers_in_a_pipeline(
    make_case: Callable[..., Case], family: str, texts: str, head: int, tmp_path: Path
) -> None:
    case, name = make_case(family, texts), CLASSES[head]
    config = AutoConfig.from_pretrained(case.reference.folder)
    config.num_labels, config.initializer_range = 5, RANGE
    torch.manual_seed(2)
    getattr(transformers, name).from_config(config).save_pretrained(tmp_path / "model")
    load_tokenizer(case.reference).save_pretrained(tmp_path / "model")
    reference, heads = resolve_encoder(EncoderSpec(name=str(tmp_path / "model"))), case.some_heads()
    special = special_tokens_of(load_tokenizer(reference))
    model, constants = load_own(reference, name), ByPosition(case.constants.matrices)
    answers = own_answers(model, case.split, special, constants, heads)
    other = own_answers(model, case.split, special, constants, heads[1:])
    labels = tuple(config.id2label.values())
    document = export_encoder(
        reference,
        case.constants,
        heads,
        replace(case.layout, positions="tokens"),
        tmp_path / "export",
        examples=case.split,
        classifier=OwnClassifier(OwnHead(model), name, labels, answers),
    )
    assert document.classifier is not None
    assert document.classifier["same"] == document.classifier["rows"] == len(case.split)
    assert "the model's own head; it answers" in (tmp_path / "export" / "README.md").read_text()
    exported = papa.load_exported(tmp_path / "export")
    inputs = case.tokens(exported)
    logits = exported(**inputs).logits
    if head:
        labelled = case.split.labels_of(case.split.rows) >= 0
        logits = logits[inputs["attention_mask"].bool()][torch.from_numpy(labelled)]
    assert float((logits - torch.from_numpy(answers["logits"])).abs().max()) <= 1e-4
    assert float((logits - torch.from_numpy(other["logits"])).abs().max()) > 1e-2
    if texts == "text":
        classify = pipeline("text-classification", model=exported, tokenizer=exported.tokenizer)
        found = [one["label"] for one in classify(case.texts[0])]
        assert found == [labels[number] for number in answers["logits"].argmax(1)]
