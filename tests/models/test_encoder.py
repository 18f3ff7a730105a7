"""A borrowed model is as it was found, and two encoders of its weights compute side by side."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from papa.heads.constants import control
from papa.heads.replacement import mixed_by, replaced
from papa.models.encoder import Encoder
from papa.text.batches import MicroBatch
from tests.heads.cases import Case
from tests.make import ENCODERS, random_model
from tests.models.inputs import SLOTS, some_inputs


def _model_in_use(variant: str) -> Any:
    """As users hold models: in train mode, some weights frozen; dropout is off."""
    model = random_model(variant).float().train()
    for module in model.modules():
        for name in ("p", "attention_dropout", "dropout_prob", "attention_probs_dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.get_input_embeddings().weight.requires_grad_(False)
    return model


def _outputs(model: Any) -> list[Tensor]:
    with torch.no_grad():
        output = model(input_ids=torch.arange(40).view(2, 20) % 290 + 5, output_hidden_states=True)
    tensors = [value for value in output.values() if isinstance(value, Tensor)]
    return [*output.hidden_states, *tensors]


def _state(model: Any) -> list[object]:
    state: list[object] = [copy.deepcopy(model.config.to_dict()), model.config._attn_implementation]
    state += [(name, id(buffer)) for name, buffer in model.named_buffers()]
    for name, module in model.named_parameters():
        state.append((name, id(module), module.requires_grad, module.data_ptr()))
    for name, module in model.named_modules():
        attributes = vars(module)
        state.append(
            (name, id(module), module.training, sorted(attributes), attributes.get("forward"))
        )
        state.append(list(module._forward_hooks.values()))
    return state


@pytest.mark.parametrize("variant", ENCODERS)
def test_a_borrowed_model_still_trains_unchanged(variant: str) -> None:
    model = _model_in_use(variant)
    hook_calls = list[object]()
    model.register_forward_hook(lambda *_: hook_calls.append(1))
    # After a first forward pass: transformers puts hooks of its own in place then.
    outputs = _outputs(model)
    before = _state(model)
    hook_calls.clear()
    encoder = Encoder(model)
    owned = {parameter.data_ptr() for parameter in model.parameters()}
    assert all(parameter.data_ptr() in owned for parameter in encoder.model.parameters())
    batch = some_inputs(1, pad=model.config.pad_token_id).compact()
    constants = control("toeplitz", encoder.layers, encoder.heads, SLOTS)
    with torch.inference_mode(), replaced(encoder, constants, [(0, 1), (2, 3)]):
        changed = encoder.token_states(batch)[-1]
        assert _state(model) == before, "while it is in use"
        assert not hook_calls, "hooks of the user's see none of PAPA's passes"
        assert all(map(torch.equal, _outputs(model), outputs))
    with torch.inference_mode():
        original = encoder.token_states(batch)[-1]
    assert not torch.allclose(changed, original), "control: the copy had it"
    model(input_ids=torch.arange(20)[None] + 5).last_hidden_state.square().mean().backward()
    assert all(parameter.grad is None for parameter in encoder.model.parameters())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    torch.optim.SGD(trained, lr=0.1).step()
    with torch.inference_mode():
        assert not torch.allclose(encoder.token_states(batch)[-1], original), "it follows the model"
    before = _state(model)
    encoder.model.double()
    assert _state(model) == before


def last_states(encoder: Encoder, batch: MicroBatch, case: Case, share: float) -> Tensor:
    shares = torch.full((encoder.layers, encoder.heads), share)
    with torch.no_grad(), mixed_by(encoder, case.constants(), shares):
        return encoder.token_states(batch)[-1]


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta", "modernbert", "albert"])
def test_twins_with_rules_of_their_own_compute_side_by_side(family: str) -> None:
    case = Case(family)
    encoder = case.encoder
    batch = case.inputs(2).compact()
    twin = encoder.twin()
    shares = (0.2, 0.8)
    expected_states = [last_states(encoder, batch, case, share) for share in shares]
    with ThreadPoolExecutor(2) as executor:
        for _ in range(10):
            results = executor.map(last_states, (encoder, twin), [batch] * 2, [case] * 2, shares)
            for states, expected in zip(results, expected_states, strict=True):
                torch.testing.assert_close(states, expected)
    assert not torch.allclose(*expected_states), "negative control"


def test_twins_share_their_weights() -> None:
    encoder = Case("bert").encoder
    pairs = zip(encoder.model.parameters(), encoder.twin().model.parameters(), strict=True)
    assert all(weight.data_ptr() == copy.data_ptr() for weight, copy in pairs)
