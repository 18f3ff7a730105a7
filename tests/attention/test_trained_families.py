"""Trained attention in other families' classes, against a padded stock model."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from papa.attention.mixing import mixed
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder
from tests.attention import test_golden
from tests.attention.test_golden import Golden
from tests.encoders import trained
from tests.plain import plain_model, plain_pass, plainly, with_constants, with_mix

golden = test_golden.golden

Convert = Callable[[Encoder], PreTrainedModel]
OTHER = [trained.as_roberta, trained.as_mpnet, trained.as_deberta_v3]


@pytest.mark.parametrize("convert", OTHER)
def test_other_classes_match_a_padded_stock_model(
    golden: Golden, minilm: Encoder, convert: Convert
) -> None:
    model = convert(minilm)
    plain = plain_model(copy.deepcopy(model))
    encoder, inputs = Encoder(model), golden.inputs()
    batch, mask = inputs.compact(), inputs.attention_mask
    constants, share = golden.constants, golden.tensors["lambda_logits"].sigmoid()
    ids = inputs.input_ids.masked_fill(~mask, plain.config.pad_token_id)

    def stock(change) -> Tensor:
        with torch.inference_mode(), plainly(encoder.family.attentions(plain), change):
            output = plain_pass(
                plain,
                input_ids=ids,
                attention_mask=mask.long(),
                token_type_ids=inputs.token_type_ids,
            )
        return output.last_hidden_state[:, batch.columns]

    def difference(expected: Tensor) -> float:
        with torch.inference_mode():
            found = encoder.hidden_states(batch)[-1]
        return float((found - expected).abs()[batch.attention_mask].max())

    for count in (0, 36, 72):
        expected = stock(with_constants(constants.matrices, golden.order[:count], mask))
        with replaced(encoder, constants, golden.order[:count]):
            assert difference(expected) < 2e-5
        with replaced(encoder, constants, golden.order[count % 72 : count % 72 + 9]):
            assert difference(expected) > 0.01
    expected = stock(with_mix(constants.matrices, share, mask))
    with mixed(encoder, constants, golden.tensors["lambda_logits"]):
        assert difference(expected) < 2e-5
    with mixed(encoder, constants, -golden.tensors["lambda_logits"]):
        assert difference(expected) > 0.01


def test_roberta_is_bert_with_counted_positions(golden: Golden, minilm: Encoder) -> None:
    from transformers import BertModel

    bert = BertModel(copy.deepcopy(minilm.config), add_pooling_layer=False)
    bert.load_state_dict(minilm.model.state_dict())
    bert.eval().set_attn_implementation("eager")
    roberta, inputs = Encoder(trained.as_roberta(minilm)), golden.inputs()
    batch, mask = inputs.compact(), inputs.attention_mask.long()

    def difference(positions: Tensor) -> float:
        with torch.inference_mode():
            expected = bert(
                input_ids=inputs.input_ids, attention_mask=mask, position_ids=positions
            ).last_hidden_state
            found = roberta.hidden_states(batch)[-1]
        return float((found - expected[:, batch.columns]).abs()[batch.attention_mask].max())

    assert difference((mask.cumsum(dim=1) - 1).clamp(min=0)) < 1e-5
    assert difference(torch.arange(64)[None]) > 0.01
