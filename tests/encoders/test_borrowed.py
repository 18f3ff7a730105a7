"""A model that somebody already holds is as it was found: while PAPA uses it, and afterwards."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder
from tests.encoders.inputs import SLOTS, some_inputs
from tests.make import ENCODERS, random_model


def _held(variant: str) -> Any:
    """As users hold models: in train mode, some weights frozen, one hook in place, dropout off to
    compare outputs.
    """
    model = random_model(variant).float().train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout_prob", "attention_probs_dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.get_input_embeddings().weight.requires_grad_(False)
    return model


def _outputs(model: Any) -> list[Tensor]:
    ids = torch.arange(40).view(2, 20) % 290 + 5
    with torch.no_grad():
        output = model(input_ids=ids, output_hidden_states=True)
    pooled = getattr(output, "pooler_output", None)
    return [*output.hidden_states, output.last_hidden_state, *([] if pooled is None else [pooled])]


def _state(model: Any) -> dict[str, Any]:
    return {
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "parameters": [
            (name, id(parameter), parameter.requires_grad, parameter.data_ptr())
            for name, parameter in model.named_parameters()
        ],
        "buffers": [(name, id(buffer)) for name, buffer in model.named_buffers()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "forwards": [vars(module).get("forward") for module in model.modules()],
        "hooks": [list(module._forward_hooks.values()) for module in model.modules()],
        "config": copy.deepcopy(model.config.to_dict()),
        "attention": model.config._attn_implementation,
    }


@pytest.mark.parametrize("variant", ENCODERS)
def test_the_model_stays_as_it_was_found(variant: str) -> None:
    model = _held(variant)
    seen: list[Any] = []
    model.register_forward_hook(lambda *_: seen.append(1))
    # After a first forward pass: transformers puts hooks of its own in place then.
    outputs = _outputs(model)
    before = _state(model)
    seen.clear()

    encoder = Encoder(model)
    owned = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    shared = [one.untyped_storage().data_ptr() in owned for one in encoder.model.parameters()]
    # DeBERTa v1 has queries, keys and values interleaved: they are taken apart.
    assert all(shared) or (variant.startswith("deberta") and sum(shared) > len(shared) / 2)
    batch = some_inputs(1, pad=model.config.pad_token_id).compact()
    constants = control("toeplitz", encoder.layers, encoder.heads, SLOTS)
    with torch.inference_mode(), replaced(encoder, constants, [(0, 1), (2, 3)]):
        changed = encoder.hidden_states(batch)[-1]
        assert _state(model) == before, "while it is in use"
        assert not seen, "hooks of the user's see none of PAPA's passes"
        assert all(map(torch.equal, _outputs(model), outputs))
    with torch.inference_mode():
        own = encoder.hidden_states(batch)[-1]
    assert not torch.allclose(changed, own), "negative control: the copy had it in force"
    encoder.model.double()
    assert _state(model) == before
    assert all(map(torch.equal, _outputs(model), outputs))


@pytest.mark.parametrize("variant", ["bert", "modernbert", "deberta_v3"])
def test_the_model_still_trains_and_the_encoder_follows(variant: str) -> None:
    model = _held(variant)
    encoder, batch = Encoder(model), some_inputs(1).compact()
    with torch.inference_mode():
        before = encoder.hidden_states(batch)[-1]
    optimizer = torch.optim.SGD(
        [parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1
    )
    model(input_ids=torch.arange(20)[None] + 5).last_hidden_state.square().mean().backward()
    assert all(parameter.grad is None for parameter in encoder.model.parameters())
    optimizer.step()
    with torch.inference_mode():
        assert not torch.allclose(encoder.hidden_states(batch)[-1], before)
