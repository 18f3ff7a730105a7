"""Constant outputs on the packed path, against the stock model's own and ``papa.ablated``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

import papa
from papa.heads.outputs import ConstantOutputs, drawn_rows, mean_outputs, resampled_outputs
from papa.heads.replacement import replaced
from papa.models.encoder import Encoder
from papa.models.reference import EncoderReference
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from tests.probes.conftest import HEADS as EVERY

HEADS = EVERY[::2]


@pytest.fixture(scope="module")
def stock(reference: EncoderReference) -> PreTrainedModel:
    return AutoModel.from_pretrained(reference.folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def train(corpora: dict[str, TokenisedCorpus]) -> TokenisedSplit:
    return corpora["cola"].split("train")


def padded(split: TokenisedSplit, rows: Any) -> dict[str, Tensor]:
    """Rows as the stock model takes them, each token at the position of its slot."""
    batch = micro_batch(split, rows)
    found = torch.zeros(3, len(rows), split.slots, dtype=torch.int64)
    values = torch.stack([batch.input_ids, torch.ones_like(batch.input_ids), batch.token_type_ids])
    found[:, batch.inputs_of_tokens, batch.slot_ids] = values
    return dict(zip(("input_ids", "attention_mask", "token_type_ids"), found, strict=True))


@torch.inference_mode()
def difference(encoder: Encoder, stock: PreTrainedModel, split: TokenisedSplit, rows: Any) -> float:
    """The largest one of last hidden states, on real tokens."""
    inputs, batch = padded(split, rows), micro_batch(split, rows)
    theirs = stock(**inputs).last_hidden_state[batch.inputs_of_tokens, batch.slot_ids]
    return float((encoder.token_states(batch)[-1] - theirs).abs().max())


def of_split(encoder: Encoder, split: TokenisedSplit, **options: Any) -> ConstantOutputs:
    return mean_outputs(encoder, split, batch_tokens=256, **options)


def test_the_mean_is_that_of_papa_ablated(
    encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit
) -> None:
    found = of_split(encoder, train, by_slot=False)
    rows, text = np.arange(8), [padded(train, train.rows)]
    with papa.ablated(stock, HEADS, by="mean", data=text):
        with replaced(encoder, found, HEADS):
            assert difference(encoder, stock, train, rows) < 1e-5
        with replaced(encoder, of_split(encoder, train, by_slot=True), HEADS):
            assert difference(encoder, stock, train, rows) > 0.01, "negative control"
        assert difference(encoder, stock, train, rows) > 0.01, "negative control"
    assert difference(encoder, stock, train, rows) < 1e-5, "both are as before"


@torch.inference_mode()
def test_means_by_slot_are_those_of_the_stock_model(
    encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit
) -> None:
    seen: list[Tensor] = []
    module = stock.encoder.layer[1].attention.self
    hook = module.register_forward_hook(lambda module, inputs, output: seen.append(output[0]))
    inputs = padded(train, train.rows)
    stock(**inputs)
    hook.remove()
    real = inputs["attention_mask"].double()
    sums = torch.einsum("bs,bsd->sd", real, seen[0].double())
    expected = (sums / real.sum(0).clamp(min=1)[:, None]).unflatten(1, (12, -1)).transpose(0, 1)
    found, had = of_split(encoder, train, by_slot=True), real.sum(0) > 0
    assert not had.all()
    torch.testing.assert_close(found.values[1][:, had], expected[:, had].float(), atol=1e-5, rtol=0)
    overall = (sums.sum(0) / real.sum()).unflatten(0, (12, -1)).float()
    for slot in (~had).nonzero()[:3, 0]:
        torch.testing.assert_close(found.values[1][:, slot], overall, atol=1e-5, rtol=0)
    one = of_split(encoder, train, by_slot=False)
    torch.testing.assert_close(one.values[1][:, 0], overall, atol=1e-5, rtol=0)


def test_what_is_resampled_is_that_of_papa_ablated_with_the_same_donors(
    encoder: Encoder, stock: PreTrainedModel, train: TokenisedSplit
) -> None:
    found = resampled_outputs(encoder, train, seed=3, batch_tokens=256)
    drawn, lengths = drawn_rows(train, 3), train.lengths
    shared = [length for length in drawn if (lengths == length).sum() > 1]
    common = max(shared, key=lambda length: int((lengths == length).sum()))
    for length in (min(shared), common, max(shared)):
        assert lengths[drawn[length]] == length
        # A donor of papa.ablated is another text.
        rows = train.rows[(lengths == length) & (train.rows != drawn[length])]
        data: list[Mapping[str, Tensor]] = [padded(train, [drawn[length]])]
        with papa.ablated(stock, HEADS, by="resample", data=data), replaced(encoder, found, HEADS):
            assert difference(encoder, stock, train, rows) < 1e-5
    other = resampled_outputs(encoder, train, seed=4, batch_tokens=256)
    rows = train.rows[lengths == common]
    with replaced(encoder, found, HEADS), torch.inference_mode():
        one = encoder.token_states(micro_batch(train, rows))[-1]
        with replaced(encoder, other, HEADS):
            assert (encoder.token_states(micro_batch(train, rows))[-1] - one).abs().max() > 0.01
