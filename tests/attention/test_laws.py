"""The laws of the method, for every family, against plain padded computations by transformers' own
models.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from papa.attention.mixing import mixed
from papa.attention.replacement import replaced
from tests.attention.cases import HALF, Case, distance, random_constants
from tests.encoders.inputs import some_inputs
from tests.plain import plainly, with_constants, with_mix

pytestmark = pytest.mark.usefixtures("no_gradients")


def test_compact_equals_padded(case: Case) -> None:
    inputs = case.inputs(1)
    assert case.away(inputs, case.padded(inputs)) < case.tolerance
    moved = case.encoder.hidden_states(case.inputs(2).compact())
    assert distance(moved, case.padded(inputs), inputs) > 0.1


def test_compact_equals_padded_for_two_texts(case: Case) -> None:
    """The second texts start at a slot of their own, so columns say little about distances."""
    inputs = some_inputs(1, (3, 9, 5), second=(6, 2, 1), pad=case.pad, segments=case.segments)
    constants = random_constants(case)
    with plainly(case.modules(), with_constants(constants.matrices, HALF, inputs.attention_mask)):
        expected = case.padded(inputs)
    with replaced(case.encoder, constants, HALF):
        assert case.away(inputs, expected) < case.tolerance
    assert case.away(inputs, case.padded(inputs)) < case.tolerance


def test_inputs_side_by_side_do_not_meet(case: Case) -> None:
    """All tokens run as one row, here longer than most variants have positions; attention keeps
    inputs apart.
    """
    inputs = case.inputs(1, tuple(range(1, 15)))
    batch = inputs.compact()
    assert int(batch.attention_mask.sum()) > 100
    found = case.encoder.hidden_states(batch)
    assert distance(found, case.padded(inputs), inputs) < case.tolerance
    alone = case.encoder.token_states(inputs[6:7].compact())
    start = int(batch.attention_mask[:6].sum())
    together = [
        states[start : start + len(alone[0])] for states in case.encoder.token_states(batch)
    ]
    assert (
        max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True))
        < case.tolerance
    )
    assert float((together[-1] - alone[-1].flip(0)).abs().max()) > 0.01


def test_slots_are_no_columns(case: Case) -> None:
    """The same tokens side by side, without the gaps, are another input; RoBERTa's family alone
    does not notice.
    """
    inputs = case.inputs(1)
    batch = inputs.compact()
    squeezed = replace(batch, columns=torch.arange(len(batch.columns)))
    difference = distance(case.encoder.hidden_states(squeezed), case.padded(inputs), inputs)
    assert (
        difference < case.tolerance if case.encoder.family.name == "RoBERTa" else difference > 0.01
    )


def test_positions_are_slots_or_count_tokens(case: Case) -> None:
    """A token moved to another slot changes what is computed; RoBERTa alone counts tokens and does
    not notice.
    """
    inputs = some_inputs(1, (3,), pad=case.pad)
    moved = copy.deepcopy(inputs)
    moved.attention_mask[:, 3], moved.attention_mask[:, 2] = True, False
    moved.input_ids[:, 3], moved.input_ids[:, 2] = moved.input_ids[:, 2].clone(), case.pad
    before = case.encoder.hidden_states(inputs.compact())[-1]
    after = case.encoder.hidden_states(moved.compact())[-1]
    difference = float((before - after).abs().max())
    assert (
        difference < case.tolerance if case.encoder.family.name == "RoBERTa" else difference > 0.01
    )


def test_extra_padding_changes_nothing(case: Case) -> None:
    inputs = case.inputs(1)
    wide = inputs.compact(extra=(12, 17))
    kept = torch.isin(wide.columns, inputs.compact().columns)
    with replaced(case.encoder, random_constants(case), HALF):
        padded = [states[:, kept] for states in case.encoder.hidden_states(wide)]
        assert (
            distance(padded, case.encoder.hidden_states(inputs.compact()), inputs) < case.tolerance
        )


def test_lambda_one_is_the_unmodified_encoder(case: Case) -> None:
    inputs = case.inputs(1)
    theta = torch.full(case.shape, 40.0)
    with mixed(case.encoder, random_constants(case), theta):
        assert case.away(inputs, case.padded(inputs)) < case.tolerance
    with mixed(case.encoder, random_constants(case), theta * 0):
        assert case.away(inputs, case.padded(inputs)) > 0.1


def test_lambda_zero_is_all_constant(case: Case) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    with replaced(case.encoder, constants, case.heads):
        all_constant = case.encoder.hidden_states(inputs.compact())
    with mixed(case.encoder, constants, torch.full(case.shape, -40.0)):
        assert case.away(inputs, all_constant) < case.tolerance
    assert case.away(inputs, all_constant) > 0.1


def test_mixing_equals_plain(case: Case) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    theta = torch.randn(
        case.encoder.layers,
        case.encoder.heads,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(3),
    )
    with plainly(
        case.modules(), with_mix(constants.matrices, theta.sigmoid(), inputs.attention_mask)
    ):
        expected = case.padded(inputs)
    with mixed(case.encoder, constants, theta):
        assert case.away(inputs, expected) < case.tolerance
    with mixed(case.encoder, constants, -theta):
        assert case.away(inputs, expected) > 0.01


@pytest.mark.parametrize("count", [1, 8, 12])
def test_replacing_equals_plain(case: Case, count: int) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    heads = (HALF + [head for head in case.heads if head not in HALF])[:count]
    with plainly(case.modules(), with_constants(constants.matrices, heads, inputs.attention_mask)):
        expected = case.padded(inputs)
    with replaced(case.encoder, constants, heads):
        assert case.away(inputs, expected) < case.tolerance
    with replaced(case.encoder, random_constants(case, seed=6), heads):
        assert case.away(inputs, expected) > 0.01


def test_constants_of_one_input_reproduce_its_forward_pass(case: Case) -> None:
    one, other = case.inputs(1, (9,)), case.inputs(2, (9,))
    with replaced(case.encoder, case.average(one).average(), case.heads):
        assert case.away(one, case.padded(one)) < case.tolerance
    with replaced(case.encoder, case.average(other).average(), case.heads):
        assert case.away(one, case.padded(one)) > 0.05


def test_average_equals_plain(case: Case) -> None:
    inputs = case.inputs(1, (3, 9, 5, 9, 4, 7))
    real = inputs.attention_mask.double()
    pairs = torch.einsum("bi,bj->ij", real, real)
    both = real[:, :, None] * real[:, None, :]
    expected = (case.attentions(inputs).double() * both[None, :, None]).sum(dim=1) / pairs.clamp(
        min=1
    )
    average = case.average(inputs[0:2], inputs[2:6]).average()
    assert float((average.matrices - expected).abs().max()) < case.tolerance / 10
    assert torch.equal(average.seen, pairs > 0)
    assert float(average.matrices[:, :, ~average.seen].abs().max()) == 0.0
    assert (
        float((average.matrices - case.average(case.inputs(2)).average().matrices).abs().max())
        > 0.01
    )


def test_merged_shards_equal_one_pass_bit_for_bit(case: Case) -> None:
    batches = [case.inputs(seed) for seed in range(5)]
    whole = case.average(*batches)
    for cut in (1, 3):
        # As ``average_split`` makes them: such tensors may not be changed in place just anywhere.
        with torch.inference_mode():
            left, right = case.average(*batches[:cut]), case.average(*batches[cut:])
        left.merge(right)
        assert torch.equal(left.sums, whole.sums)
        assert torch.equal(left.counts, whole.counts)
    assert not torch.equal(case.average(*batches[:4]).sums, whole.sums)
