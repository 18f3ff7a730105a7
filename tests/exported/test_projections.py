"""Constant heads of an export have no queries and keys, in memory and in its file."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

import papa
from tests.exported.exports import (
    EVERY,
    FIRST,
    RELATIVE,
    SLOTS,
    TOLERANCE,
    banded,
    difference,
    padded,
    saved,
    states,
    tokenizer_of,
)
from tests.make import random_model


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", *RELATIVE])
def test_constant_heads_have_no_queries_and_keys(family: str, tmp_path: Path) -> None:
    model = random_model(family).float()
    tokenizer = tokenizer_of(family)
    encoder = papa.load_encoder(model, tokenizer, slots=SLOTS, device="cpu")
    exported, tokens = saved(model, tokenizer, tmp_path / "export", banded(), heads=EVERY)
    with papa.replaced(encoder, EVERY, substitute=banded()):
        features = papa.features(encoder, FIRST, progress=False)
    expected = [text[:, -1] for text in features]
    assert difference(states(exported, padded(tokens)), expected) < TOLERANCE
    # A square of width, for queries and for keys of each layer with weights of its own.
    own_layers = model.config.num_hidden_groups if family == "albert" else 3
    squares = sum(weight.numel() for name, weight in model.named_parameters() if "bias" not in name)
    kept = sum(weight.numel() for name, weight in exported.named_parameters() if "bias" not in name)
    assert squares - kept >= own_layers * 2 * 32 * 32


def test_layers_that_share_weights_share_them_in_the_file(tmp_path: Path) -> None:
    model = random_model("albert").float()
    saved(model, tokenizer_of(), tmp_path / "export")
    stored = load_file(tmp_path / "export" / "model.safetensors")
    weights = sum(tensor.numel() for name, tensor in stored.items() if "constants" not in name)
    indices = sum(tensor.numel() for tensor in stored.values() if not tensor.is_floating_point())
    assert weights - indices < sum(weight.numel() for weight in model.parameters())
