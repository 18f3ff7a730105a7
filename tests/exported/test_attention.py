"""An export has its study's hidden states and ``papa.ablated``'s."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import papa
from papa.heads.constants import ConstantMatrices
from tests.exported.exports import (
    FIRST,
    HEADS,
    RELATIVE,
    SECOND,
    SLOTS,
    TOLERANCE,
    banded,
    constants,
    difference,
    headed,
    in_slots,
    padded,
    saved,
    states,
    tokenizer_of,
)
from tests.make import outputs_of, random_model


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    "family", ["bert", "roberta", "electra", "distilbert", "albert", "modernbert", *RELATIVE]
)
def test_hidden_states_are_the_studys(family: str, pairs: bool, tmp_path: Path) -> None:
    model = random_model(family).float()
    tokenizer = tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    texts: Any = list(zip(FIRST, SECOND, strict=True)) if pairs else FIRST

    def of_study(matrices: Tensor) -> list[Tensor]:
        with papa.replaced(encoder, HEADS, substitute=matrices):
            return [text[:, -1] for text in papa.features(encoder, texts, progress=False)]

    expected = of_study(banded())
    exported, tokens = saved(model, tokenizer, tmp_path / "export", banded(), pairs=pairs)
    for side in ("right", "left"):
        tokens.padding_side = side
        assert difference(states(exported, padded(tokens, pairs)), expected) < TOLERANCE
    with papa.ablated(model, HEADS, substitute=banded()):
        ablated_states = states(model, in_slots(model, tokenizer, pairs))
        assert difference(ablated_states, expected) < TOLERANCE
    assert difference(of_study(constants(seed=2)), expected) > 0.1


def test_a_text_may_fill_every_slot(folder: Path) -> None:
    bert = random_model("bert").float()
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    inputs = tokens([" ".join(FIRST * 9)] * 2, truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (2, SLOTS)
    with papa.ablated(bert, HEADS, substitute=constants()):
        expected = states(bert, inputs)
    assert difference(states(exported, inputs), expected) < TOLERANCE
    assert difference(states(bert, inputs), expected) > 0.1
    longer = {name: torch.cat([values[:, :2], values[:, 1:]], 1) for name, values in inputs.items()}
    with pytest.raises(papa.PapaError, match="input 0"):
        outputs_of(exported, longer)


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("Bert", "SequenceClassification"),
        ("Roberta", "SequenceClassification"),
        ("Albert", "SequenceClassification"),
        ("ModernBert", "SequenceClassification"),
        ("Electra", "TokenClassification"),
        ("DistilBert", "MaskedLM"),
    ],
)
def test_a_models_own_head_comes_along(family: str, head: str, tmp_path: Path) -> None:
    model = headed(f"{family}For{head}")
    tokenizer = tokenizer_of(family.lower())
    papa.export(model, tokenizer, heads=HEADS, substitute=constants(), folder=tmp_path / "export")
    exported = getattr(transformers, f"AutoModelFor{head}").from_pretrained(tmp_path / "export")
    ordinary = padded(tokenizer)
    moved = in_slots(model, tokenizer)
    if family != "Roberta":  # whose positions are ordinary anyway
        moved["position_ids"] = (moved["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with papa.ablated(model, HEADS, substitute=constants()):
        expected = outputs_of(model, moved).logits
    logits = outputs_of(exported, ordinary).logits
    original_logits = outputs_of(model, ordinary).logits
    if head != "SequenceClassification":
        real = ordinary["attention_mask"].bool()
        logits = logits[real]
        original_logits = original_logits[real]
        expected = expected[moved["attention_mask"].bool()]
    assert difference(logits, expected) < TOLERANCE * float(expected.abs().max())
    assert difference(logits, original_logits) > 0.01


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("family", ["Bert", "MPNet", "Deberta", "DebertaV2"])
@pytest.mark.parametrize(
    ("special", "other_special"),
    [((SLOTS - 1,), ()), ((), (SLOTS - 1,))],
    ids=["average", "matrices of no text"],
)
def test_matrices_by_position_are_read_as_papa_ablated_reads_them(
    special: tuple[int, ...],
    other_special: tuple[int, ...],
    family: str,
    pairs: bool,
    tmp_path: Path,
) -> None:
    """As a study of a native head has them."""
    model = headed(f"{family}ForSequenceClassification")
    tokenizer = tokenizer_of(family.lower())
    seen = torch.ones(SLOTS, SLOTS, dtype=torch.bool)
    matrices = ConstantMatrices(constants(), seen, "average", special=special)
    to = tmp_path / "export"
    papa.export(model, tokenizer, heads=HEADS, substitute=matrices, folder=to, pairs=pairs)
    exported = AutoModelForSequenceClassification.from_pretrained(to)
    inputs = padded(tokenizer, pairs)
    with torch.no_grad():
        with papa.ablated(model, HEADS, substitute=matrices):
            expected = model(**inputs).logits
        with papa.ablated(model, HEADS, substitute=replace(matrices, special=other_special)):
            other = model(**inputs).logits
        logits = exported(**inputs).logits
    assert difference(logits, expected) < TOLERANCE * float(expected.abs().max())
    assert difference(other, expected) > 0.01, "negative control: another slot of the last token"


@pytest.mark.parametrize(("texts", "marks"), [((FIRST,), False), ((FIRST, SECOND), True)])
def test_unmarked_inputs_refused(folder: Path, texts: tuple[list[str], ...], marks: bool) -> None:
    exported = AutoModel.from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    inputs = tokens(*texts, add_special_tokens=marks, padding=True, return_tensors="pt")
    with pytest.raises(papa.PapaError, match="input 0"):
        outputs_of(exported, inputs)
