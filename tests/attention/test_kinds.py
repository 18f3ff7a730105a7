"""Every kind of constants and every head order on trained weights and real text, against the plain
padded way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModel

from papa.attention.average import averaging
from papa.attention.constants import ConstantMatrices, control
from papa.attention.replacement import replaced
from papa.encoders.bert import BERT
from papa.encoders.encoder import Encoder
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.spec import EncoderSpec
from papa.spec.constants import CONTROLS
from papa.spec.orders import head_order
from tests.encoders.inputs import Inputs
from tests.plain import plainly, with_constants

SLOTS = 64
KINDS = ("average", *CONTROLS)


@pytest.fixture(scope="module")
def plain():
    folder = resolve_encoder(EncoderSpec(name=EMBEDDED)).folder
    return AutoModel.from_pretrained(
        folder, attn_implementation="plain", use_safetensors=True
    ).eval()


@pytest.fixture(scope="module")
def sentences(shared: Path) -> Inputs:
    """CoLA sentences in the layout: the first eight to compute with, 40 to average over."""
    tensors = load_file(shared / "golden" / "minilm_cola_s64.safetensors")
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (tensors["corpus." + name][:48] for name in names)
    return Inputs(ids.long(), mask.bool(), types.long())


@pytest.fixture(scope="module")
def average(minilm: Encoder, sentences: Inputs) -> ConstantMatrices:
    with torch.inference_mode(), averaging(minilm, SLOTS) as averager:
        minilm.observe(sentences[8:48].compact())
    return averager.result().average()


def plain_states(
    plain, inputs: Inputs, constants: ConstantMatrices, heads: list[tuple[int, int]]
) -> Tensor:
    change = with_constants(constants.matrices, heads, inputs.attention_mask)
    with torch.inference_mode(), plainly(BERT.attentions(plain), change):
        output = plain(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask.long(),
            token_type_ids=inputs.token_type_ids,
        )
    return output.last_hidden_state[:, inputs.compact().columns]


def largest_difference(encoder: Encoder, inputs: Inputs, expected: Tensor) -> float:
    batch = inputs.compact()
    with torch.inference_mode():
        found = encoder.hidden_states(batch)[-1]
    return float((found - expected).abs()[batch.attention_mask].max())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_equals_plain(
    minilm: Encoder, plain, sentences: Inputs, average: ConstantMatrices, kind: str
) -> None:
    inputs = sentences[0:4]
    constants = average if kind == "average" else control(kind, minilm.layers, minilm.heads, SLOTS)
    heads = head_order("first_to_last", None, minilm.layers, minilm.heads)
    expected = plain_states(plain, inputs, constants, heads)
    with replaced(minilm, constants, heads):
        assert largest_difference(minilm, inputs, expected) < 1e-5
    other = control(
        "identity" if kind == "toeplitz" else "toeplitz", minilm.layers, minilm.heads, SLOTS
    )
    with replaced(minilm, other, heads):
        assert largest_difference(minilm, inputs, expected) > 0.01


def test_zeros_put_out_nothing(minilm: Encoder, sentences: Inputs) -> None:
    outputs = []
    attention = minilm.family.attentions(minilm.model)[2]
    hook = attention.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
    try:
        with (
            torch.inference_mode(),
            replaced(minilm, control("zeros", 6, 12, SLOTS), [(2, 0), (2, 5)]),
        ):
            minilm.observe(sentences[0:8].compact())
    finally:
        hook.remove()
    by_head = outputs[0].unflatten(-1, (12, 32)).abs().amax(dim=(0, 1, 3))
    assert (by_head == 0).nonzero().flatten().tolist() == [0, 5]
