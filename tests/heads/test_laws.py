"""The laws of the method, for every family, against plain padded computations."""

import copy
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import mixed_by, replaced
from papa.models.layer import LayerAttention, Observing
from papa.models.slots import TokenSlots
from tests.heads.cases import EVERY, HALF, Case, distance
from tests.make import DROPOUT
from tests.models.inputs import some_inputs
from tests.plain import plainly, with_constants, with_mix

no_gradients = pytest.mark.usefixtures("no_gradients")


@no_gradients
def test_compact_equals_padded(anywhere: Case) -> None:
    """Also with second texts at a slot of their own, where columns say little about distances."""
    case = anywhere
    inputs = case.inputs(1)
    assert case.away(inputs, case.padded(inputs)) < case.tolerance
    assert case.away(case.inputs(2), case.padded(inputs)) > 0.1
    pairs = some_inputs(1, (3, 9, 5), second=(6, 2, 1), pad=case.pad, segments=case.segments)
    # Side by side these are a row longer than most variants have positions.
    many = case.inputs(1, tuple(range(1, 15)))
    for texts in (pairs, many):
        assert case.away(texts, case.padded(texts)) < case.tolerance


@no_gradients
def test_positions_are_slots_or_count_tokens(case: Case) -> None:
    """RoBERTa alone counts tokens: gaps left out and a token moved make no other input."""
    inputs = case.inputs(1)
    single_text = some_inputs(1, (3,), pad=case.pad)
    batch = inputs.compact()
    squeezed = replace(batch, columns=torch.arange(len(batch.columns)))
    moved = copy.deepcopy(single_text)
    moved.attention_mask[:, 3] = True
    moved.attention_mask[:, 2] = False
    moved.input_ids[:, 3] = moved.input_ids[:, 2].clone()
    moved.input_ids[:, 2] = case.pad
    before = case.states(single_text)[-1]
    after = case.states(moved)[-1]
    of_squeezed = distance(case.encoder.token_states(squeezed), case.padded(inputs))
    for difference in (of_squeezed, float((before - after).abs().max())):
        counts = case.encoder.family.name == "RoBERTa"
        assert difference < case.tolerance if counts else difference > 0.01
    # Nothing is remembered from the batch before.
    assert case.away(inputs, case.padded(inputs)) < case.tolerance


@no_gradients
def test_mixing_equals_plain(anywhere: Case) -> None:
    """λ = 1 is the encoder as it is, λ = 0 all heads constant."""
    case = anywhere
    inputs = case.inputs(1)
    constants = case.constants()
    theta = case.theta()
    original = case.padded(inputs)
    mix = with_mix(constants.matrices, theta.sigmoid().cpu(), inputs.attention_mask)
    with plainly(case.modules(), mix):
        expected = case.padded(inputs)
    with replaced(case.encoder, constants, EVERY):
        constant = case.states(inputs)
    for theta_used, same, different in (
        (theta, expected, original),
        (case.theta(40.0), original, constant),
        (case.theta(-40.0), constant, original),
    ):
        with mixed_by(case.encoder, constants, theta_used.sigmoid()):
            assert case.away(inputs, same) < case.tolerance
            assert case.away(inputs, different) > 0.1


@no_gradients
@pytest.mark.parametrize("count", [1, 8, 12])
def test_replacing_equals_plain(anywhere: Case, count: int) -> None:
    case = anywhere
    inputs = case.inputs(1)
    constants = case.constants()
    heads = (HALF + [head for head in EVERY if head not in HALF])[:count]
    with plainly(case.modules(), with_constants(constants.matrices, heads, inputs.attention_mask)):
        expected = case.padded(inputs)
    wide = inputs.compact(extra=(12, 17))
    with replaced(case.encoder, constants, heads):
        assert case.away(inputs, expected) < case.tolerance
        states = [states.cpu() for states in case.encoder.token_states(wide)]
        assert distance(states, expected) < case.tolerance
    with replaced(case.encoder, case.constants(seed=6), heads):
        assert case.away(inputs, expected) > 0.01


@no_gradients
def test_average_equals_plain(anywhere: Case) -> None:
    case = anywhere
    inputs = case.inputs(1, (3, 9, 5, 9, 4, 7))
    real = inputs.attention_mask.double()
    pairs = torch.einsum("bi,bj->ij", real, real)
    both = real[:, :, None] * real[:, None, :]
    attentions = torch.stack(case.plain_outputs(inputs).attentions).double()
    total = (attentions * both[None, :, None]).sum(dim=1)
    average = case.average(inputs[0:2], inputs[2:6])
    assert float((average.matrices - total / pairs.clamp(min=1)).abs().max()) < case.tolerance / 10
    assert torch.equal(average.seen, pairs > 0)
    assert float(average.matrices[:, :, ~average.seen].abs().max()) == 0.0
    other_average = case.average(case.inputs(2))
    assert float((average.matrices - other_average.matrices).abs().max()) > 0.01


@no_gradients
def test_the_encoder_is_whole_again_after_an_error(case: Case) -> None:
    inputs = case.inputs(1)
    constants = case.constants()
    before = case.states(inputs)
    mixed = mixed_by(case.encoder, constants, case.theta().sigmoid())
    for block in (replaced(case.encoder, constants, HALF), mixed):
        with suppress(KeyError), block:
            assert case.away(inputs, before) > 0.05
            raise KeyError
        assert all(map(torch.equal, before, case.states(inputs)))


def theta_gradient(states: list[Tensor], theta: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(*states[0].shape, generator=generator, dtype=torch.float64)
    read = sum((layer.cpu() * weights).sum() for layer in states)
    return torch.autograd.grad(read, [theta])[0].cpu()


@pytest.mark.parametrize("lengths", [(3, 9, 5, 9), (20, 3, 23)])
def test_gradients_of_theta_equal_plain(anywhere: Case, lengths: tuple[int, ...]) -> None:
    case = anywhere
    inputs = case.inputs(1, lengths)
    constants = case.constants()
    plain = case.theta().cpu().requires_grad_()
    theta = case.theta().requires_grad_()
    mix = with_mix(constants.matrices, plain.sigmoid(), inputs.attention_mask)
    with plainly(case.modules(), mix):
        expected = theta_gradient(case.padded(inputs), plain)

    def away(used: ConstantMatrices) -> float:
        with mixed_by(case.encoder, used, theta.sigmoid()):
            gradient = theta_gradient(case.encoder.token_states(inputs.compact()), theta)
        return float((gradient - expected).abs().max() / expected.abs().max())

    assert away(constants) < 10 * case.tolerance
    assert away(case.constants(seed=6)) > 0.01
    assert all(parameter.grad is None for parameter in case.encoder.model.parameters())


@no_gradients
@pytest.mark.parametrize("lengths", [(3, 9, 5, 9), (9, 9, 9, 9)])
@pytest.mark.parametrize("block", ["replaced", "mixed"])
def test_attention_dropout_keeps_the_mean(block: str, lengths: tuple[int, ...]) -> None:
    """The authors' code drops entries of constant and mixed attention, anew each time and input."""
    case = Case("bert")
    copies = 20
    block_context = (
        replaced(case.encoder, case.constants(), EVERY)
        if block == "replaced"
        else mixed_by(case.encoder, case.constants(), case.theta(0.0).sigmoid())
    )
    batch = case.inputs(1, lengths * copies).compact()
    drawn = torch.randn(3, 4, 4, batch.shape[1], 8, dtype=torch.float64).repeat(1, copies, 1, 1, 1)
    slots = batch.columns[None]
    real = batch.attention_mask
    layout = TokenSlots(slots, slots, real, real.sum(1), slots[:, -1:, None])
    with block_context:

        def output(dropout: float) -> Tensor:
            mask = real[:, None, None, :]
            attention = LayerAttention(
                *drawn,
                mask,
                0.3,
                layout,
                dropout=dropout,
                batch=batch,
                rules=case.encoder.dispatch.rules[1],
            )
            return attention.output(attention.all_heads).unflatten(0, (copies, 4))

        draws = torch.cat([output(0.2) for _ in range(600 // copies)])
        exact = output(0.0)[0]
    assert float((draws[0] - draws[1]).abs().max()) > 0.1
    assert float((draws.mean(dim=0) - exact).abs().mean()) < 0.02
    assert float((draws[0] - exact).abs().mean()) > 0.05


@no_gradients
def test_attention_dropout_is_the_models_own(case: Case) -> None:
    """What a rule is told to drop: nothing in eval mode."""
    dropouts: list[float] = []

    def listen(attention: LayerAttention, layer: int) -> Tensor:
        dropouts.append(attention.dropout)
        return attention.output(attention.all_heads)

    rules = {n: Observing(observe=listen, layer=n) for n in range(case.encoder.layers)}
    with case.encoder.ruled(rules):
        for training in (False, True, False):
            case.encoder.model.train(training)
            case.states(case.inputs(1))
    assert dropouts == [0.0] * 3 + [DROPOUT] * 3 + [0.0] * 3


@no_gradients
def test_constant_heads_cost_no_queries_and_keys(case: Case) -> None:
    """Operations of matrix products fall with every head that is constant."""
    inputs = case.inputs(1)
    counts = []
    for heads in ([], HALF, EVERY):
        block = replaced(case.encoder, case.constants(), heads)
        with FlopCounterMode(display=False) as counter, block:
            case.states(inputs)
        counts.append(counter.get_total_flops())
    tokens = int(inputs.attention_mask.sum())
    width = case.encoder.width
    saved = 2 * 2 * tokens * width * width // 4
    assert counts[0] - counts[1] > 0.6 * saved * len(HALF)
    assert counts[1] - counts[2] > 0.6 * saved * (len(EVERY) - len(HALF))


@no_gradients
def test_entries_that_the_average_had_never_seen_are_counted(case: Case) -> None:
    short = case.inputs(1, (3, 4))
    long = case.inputs(2, (9,))
    with replaced(case.encoder, case.average(short), HALF) as entries:
        case.states(short)
        assert entries.unseen_share == 0.0
        case.states(long)
    assert entries.unseen_share == (10 * 10 - 5 * 5) / (4 * 4 + 5 * 5 + 10 * 10)
