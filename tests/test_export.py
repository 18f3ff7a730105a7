"""An export has its study's hidden states and ``papa.ablated``'s, and is an ordinary model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import papa
from tests.encoders.models import random_model

FIRST = [
    "the doll wriggled itself loose and ran",
    "if you had eaten more you would want less",
    "facts",
    "day by day the facts are getting murkier",
]
SECOND = ["a doll", "less is more and more is less", "nobody knows the facts", "why"]
SLOTS = 64
FAMILIES = ("bert", "roberta", "electra", "distilbert", "modernbert")
HEADS = [(0, 1), (0, 2), *((1, head) for head in range(4)), (2, 0)]
TOLERANCE = 1e-5


def electra_tokenizer() -> Any:
    from transformers import ElectraTokenizer

    words = sorted({word for text in (*FIRST, *SECOND) for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return ElectraTokenizer(vocab={word: number for number, word in enumerate(vocabulary)})


def roberta_tokenizer() -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizer

    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(FIRST, vocab_size=300, min_frequency=1, special_tokens=special)
    model = json.loads(trained.to_str())["model"]
    merges = [
        tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in model["merges"]
    ]
    return RobertaTokenizer(vocab=model["vocab"], merges=merges)


def tokenizer_of(family: str) -> Any:
    return roberta_tokenizer() if family == "roberta" else electra_tokenizer()


def constants(layers: int = 3, heads: int = 4, seed: int = 1) -> Tensor:
    """Sharp rows: near-uniform ones would make any two sets of heads alike."""
    torch.manual_seed(seed)
    return (4 * torch.randn(layers, heads, SLOTS, SLOTS)).softmax(dim=-1)


def states(model: Any, inputs: Any) -> list[Tensor]:
    """The last hidden states of each text's real tokens."""
    with torch.no_grad():
        found = model(**inputs).last_hidden_state
    return [one[mask.bool()] for one, mask in zip(found, inputs["attention_mask"], strict=True)]


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_the_studys(family: str, pairs: bool, tmp_path: Path) -> None:
    model, tokenizer = random_model(family).float(), tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    texts: Any = list(zip(FIRST, SECOND, strict=True)) if pairs else FIRST
    with papa.replaced(encoder, constants(), HEADS):
        expected = [one[:, -1] for one in papa.features(encoder, texts, progress=False)]
    papa.export(model, tokenizer, HEADS, constants(), tmp_path / "export", pairs=pairs)
    exported = AutoModel.from_pretrained(tmp_path / "export")
    tokens = AutoTokenizer.from_pretrained(tmp_path / "export")
    for side in ("right", "left"):
        tokens.padding_side = side
        inputs = tokens(FIRST, *([SECOND] if pairs else []), padding=True, return_tensors="pt")
        found = states(exported, inputs)
        assert difference(found, expected) < TOLERANCE
    with papa.replaced(encoder, constants(seed=2), HEADS):
        others = [one[:, -1] for one in papa.features(encoder, texts, progress=False)]
    assert difference(others, expected) > 0.1
