"""An exported encoder gives the hidden states that the encoder gives under ``replaced``, token by
token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import papa
from papa.corpora import load_corpus, tokenise_corpus
from papa.encoders.reference import load_tokenizer
from papa.errors import DataError
from papa.exporting import ExportedEncoder, export_encoder
from papa.spec import LayoutSpec
from tests.exporting.conftest import FIRST, Case

TOLERANCE = 1e-5


def states_of(model: ExportedEncoder, case: Case) -> list[torch.Tensor]:
    """Hidden states [tokens, width] of the case's texts, through the model's own tokenizer."""
    inputs = case.tokens(model)
    output = model(**inputs, output_hidden_states=True)
    assert torch.equal(output.last_hidden_state, output.hidden_states[-1])
    assert output.last_hidden_state.shape[:2] == inputs["input_ids"].shape
    mask = inputs["attention_mask"].bool()
    assert bool((output.last_hidden_state[~mask] == 0).all())
    return [states[mask] for states in output.hidden_states]


def largest_difference(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    assert len(found) == len(expected)
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("family", "kind", "share"),
    [
        ("minilm", "text", "all"),
        ("minilm", "pair", "some"),
        ("roberta", "text", "some"),
        ("roberta", "pair", "all"),
        ("electra", "text", "all"),
        ("electra", "pair", "some"),
    ],
)
def test_equals_the_encoder_under_replaced(
    make_case: Callable[..., Case], tmp_path: Path, family: str, kind: str, share: str
) -> None:
    case = make_case(family, kind)
    every = case.every_head()
    heads = every if share == "all" else case.some_heads()
    model = case.exported(tmp_path / "export", heads)
    found = states_of(model, case)
    assert largest_difference(found, case.expected(heads)) <= TOLERANCE
    others = heads[:-1] if share == "all" else [head for head in every if head not in heads]
    assert largest_difference(found, case.expected(others)) > 1000 * TOLERANCE, (
        "other heads give other states"
    )


def test_stays_exact_where_segment_ids_stay(make_case: Callable[..., Case], tmp_path: Path) -> None:
    case = make_case("electra", "pair", segment_ids="stay")
    case.export(tmp_path / "export")
    found = states_of(papa.load_exported(tmp_path / "export"), case)
    assert largest_difference(found, case.expected(case.some_heads())) <= TOLERANCE
    follow = make_case("electra", "pair")
    assert largest_difference(found, follow.expected(case.some_heads())) > 1000 * TOLERANCE


def test_neighbours_in_a_batch_change_nothing(small: Case, written: Path) -> None:
    model = papa.load_exported(written)
    together = model(**small.tokens(model)).last_hidden_state
    for row, text in enumerate(small.texts[0]):
        alone = model(**model.tokenizer([text], return_tensors="pt")).last_hidden_state[0]
        assert float((together[row, : len(alone)] - alone).abs().max()) <= TOLERANCE


def test_conversions_reach_the_constants(small: Case, written: Path) -> None:
    model = papa.load_exported(written)
    single = states_of(model, small)
    double = states_of(model.double(), small)
    assert double[-1].dtype == torch.float64
    assert 0 < largest_difference([states.double() for states in single], double) < 1e-4


def test_is_frozen_and_stays_in_eval_mode(small: Case, written: Path) -> None:
    model = papa.load_exported(written)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    first, second = states_of(model.train(), small), states_of(model, small)
    assert largest_difference(first, second) == 0


def test_a_separator_spelled_in_a_text_is_text(written: Path) -> None:
    model = papa.load_exported(written)
    inputs = model.tokenizer(["the [SEP] doll"], return_tensors="pt")
    assert (inputs["input_ids"] == model.layout.framing.sep).sum() == 1
    assert model(**inputs).last_hidden_state.shape[1] == inputs["input_ids"].shape[1]


def test_the_tokenizer_cuts_to_what_fits(small: Case, written: Path, tmp_path: Path) -> None:
    """As the study cuts, which the card says; and nothing else does."""
    model = papa.load_exported(written)
    text = " ".join(FIRST * 5)
    inputs = model.tokenizer([text], truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape[1] == model.layout.slots
    model(**inputs)
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": text, "label": 0}) + "\n")
    rows = dict.fromkeys(("train", "validation"), tmp_path / "long.jsonl")
    source = small.task.source.model_copy(update=rows)
    corpus = tokenise_corpus(
        small.task.model_copy(update={"source": source}),
        LayoutSpec(),
        load_tokenizer(small.reference),
        small.reference,
        tmp_path / "corpus",
        shard_rows=64,
    )
    cut = load_corpus(corpus).split("validation")
    assert cut.tokens(cut.rows).input_ids.tolist() == inputs["input_ids"][0].tolist()
    assert "`truncation=True` cuts longer ones" in (written / "README.md").read_text()
    with pytest.raises(DataError, match="truncation=True"):
        model(**model.tokenizer([text], return_tensors="pt"))


def test_the_unseen_share_is_what_the_average_had_never_seen(small: Case, tmp_path: Path) -> None:
    from dataclasses import replace

    seen = torch.ones_like(small.constants.seen)
    seen[:, 2] = False
    constants = replace(small.constants, seen=seen)
    export_encoder(
        small.reference, constants, small.some_heads(), small.layout, tmp_path / "export"
    )
    model = papa.load_exported(tmp_path / "export")
    inputs = model.tokenizer(["the doll ran"], return_tensors="pt")
    model(**inputs)
    assert model.unseen_share == pytest.approx(1 / inputs["input_ids"].shape[1])
