"""The laws of the method, for every family behind the attention interface, against plain padded computations."""

from __future__ import annotations

import copy
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from benchmarks.plain import plainly, with_constants, with_mix
from papa.attention.averager import AttentionAverager, averaging
from papa.attention.constants import ConstantMatrices
from papa.attention.mixing import mixed
from papa.attention.replacement import replaced
from papa.encoders.dispatch import OwnAttention
from papa.encoders.encoder import Encoder
from papa.errors import ArtifactError
from tests.encoders.inputs import SLOTS, Inputs, some_inputs
from tests.encoders.models import random_model

FAMILIES = ("bert", "roberta", "electra")
HALF = [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 1)]
TOLERANCE = 1e-6
# In float64: what is exact in the method is exact here. Float32 is tested on trained weights (test_golden.py).


class Case:
    """One family: the encoder under test, and the same weights in transformers' own padded form."""

    def __init__(self, family: str) -> None:
        model = random_model(family)
        self.plain = copy.deepcopy(model)
        self.plain.set_attn_implementation("plain")
        self.encoder = Encoder(model)
        self.pad = self.plain.config.pad_token_id
        self.segments = self.plain.config.type_vocab_size
        self.heads = [(layer, head) for layer in range(self.encoder.layers) for head in range(self.encoder.heads)]

    def inputs(self, seed: int, lengths: tuple[int, ...] = (3, 9, 5, 9)) -> Inputs:
        return some_inputs(seed, lengths, pad=self.pad, segments=self.segments)

    def padded(self, inputs: Inputs) -> list[Tensor]:
        """Hidden states of the stock model on padded inputs, at the compact batch's slots."""
        slots = inputs.compact().slots
        output = self._plain(inputs)
        return [states[:, slots] for states in output.hidden_states]

    def attentions(self, inputs: Inputs) -> Tensor:
        """A of the stock model: [layers, batch, heads, S, S]."""
        return torch.stack(self._plain(inputs).attentions)

    def _plain(self, inputs: Inputs):
        return self.plain(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask.long(),
            token_type_ids=inputs.token_type_ids,
            output_hidden_states=True,
            output_attentions=True,
        )

    def modules(self):
        return self.encoder.family.attentions(self.plain)

    def average(self, *batches: Inputs) -> AttentionAverager:
        with averaging(self.encoder, SLOTS) as averager:
            for batch in batches:
                self.encoder.observe(batch.compact())
        return averager


@pytest.fixture(scope="module", params=FAMILIES)
def case(request) -> Case:
    return Case(request.param)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def distance(ours: list[Tensor], theirs: list[Tensor], inputs: Inputs) -> float:
    """The largest difference of any layer's hidden states on real slots."""
    assert len(ours) == len(theirs)
    real = inputs.compact().attention_mask
    return max(float((a - b).abs()[real].max()) for a, b in zip(ours, theirs, strict=True))


def random_constants(case: Case, seed: int = 5) -> ConstantMatrices:
    generator = torch.Generator().manual_seed(seed)
    shape = (case.encoder.layers, case.encoder.heads, SLOTS, SLOTS)
    return ConstantMatrices(
        torch.rand(shape, generator=generator), torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average"
    )


def test_compact_equals_padded(case: Case) -> None:
    inputs = case.inputs(1)
    assert distance(case.encoder.hidden_states(inputs.compact()), case.padded(inputs), inputs) < TOLERANCE
    moved = case.encoder.hidden_states(case.inputs(2).compact())
    assert distance(moved, case.padded(inputs), inputs) > 0.1


def test_positions_are_slots_or_count_tokens(case: Case) -> None:
    """A token moved to another slot changes what is computed; RoBERTa alone counts tokens and does not notice."""
    inputs = some_inputs(1, (3,), pad=case.pad)
    moved = copy.deepcopy(inputs)
    moved.attention_mask[:, 3], moved.attention_mask[:, 2] = True, False
    moved.input_ids[:, 3], moved.input_ids[:, 2] = moved.input_ids[:, 2].clone(), case.pad
    before = case.encoder.hidden_states(inputs.compact())[-1]
    after = case.encoder.hidden_states(moved.compact())[-1]
    difference = float((before - after).abs().max())
    assert difference < TOLERANCE if case.encoder.family.name == "RoBERTa" else difference > 0.01


def test_extra_padding_changes_nothing(case: Case) -> None:
    inputs = case.inputs(1)
    wide = inputs.compact(extra=(12, 17))
    kept = torch.isin(wide.slots, inputs.compact().slots)
    with replaced(case.encoder, random_constants(case), HALF):
        padded = [states[:, kept] for states in case.encoder.hidden_states(wide)]
        assert distance(padded, case.encoder.hidden_states(inputs.compact()), inputs) < TOLERANCE


def test_lambda_one_is_the_unmodified_encoder(case: Case) -> None:
    inputs = case.inputs(1)
    theta = torch.full((case.encoder.layers, case.encoder.heads), 40.0)
    with mixed(case.encoder, random_constants(case), theta):
        assert distance(case.encoder.hidden_states(inputs.compact()), case.padded(inputs), inputs) < TOLERANCE
    with mixed(case.encoder, random_constants(case), theta * 0):
        assert distance(case.encoder.hidden_states(inputs.compact()), case.padded(inputs), inputs) > 0.1


def test_lambda_zero_is_all_constant(case: Case) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    with replaced(case.encoder, constants, case.heads):
        all_constant = case.encoder.hidden_states(inputs.compact())
    with mixed(case.encoder, constants, torch.full((case.encoder.layers, case.encoder.heads), -40.0)):
        assert distance(case.encoder.hidden_states(inputs.compact()), all_constant, inputs) < TOLERANCE
    assert distance(case.encoder.hidden_states(inputs.compact()), all_constant, inputs) > 0.1


def test_mixing_equals_plain(case: Case) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    theta = torch.randn(
        case.encoder.layers,
        case.encoder.heads,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(3),
    )
    with plainly(case.modules(), with_mix(constants.matrices, theta.sigmoid(), inputs.attention_mask)):
        expected = case.padded(inputs)
    with mixed(case.encoder, constants, theta):
        assert distance(case.encoder.hidden_states(inputs.compact()), expected, inputs) < TOLERANCE
    with mixed(case.encoder, constants, -theta):
        assert distance(case.encoder.hidden_states(inputs.compact()), expected, inputs) > 0.01


@pytest.mark.parametrize("count", [1, 8, 12])
def test_replacing_equals_plain(case: Case, count: int) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    heads = (HALF + [head for head in case.heads if head not in HALF])[:count]
    with plainly(case.modules(), with_constants(constants.matrices, heads, inputs.attention_mask)):
        expected = case.padded(inputs)
    with replaced(case.encoder, constants, heads):
        assert distance(case.encoder.hidden_states(inputs.compact()), expected, inputs) < TOLERANCE
    with replaced(case.encoder, random_constants(case, seed=6), heads):
        assert distance(case.encoder.hidden_states(inputs.compact()), expected, inputs) > 0.01


def test_constants_of_one_input_reproduce_its_forward_pass(case: Case) -> None:
    one, other = case.inputs(1, (9,)), case.inputs(2, (9,))
    with replaced(case.encoder, case.average(one).result(), case.heads):
        assert distance(case.encoder.hidden_states(one.compact()), case.padded(one), one) < TOLERANCE
    with replaced(case.encoder, case.average(other).result(), case.heads):
        assert distance(case.encoder.hidden_states(one.compact()), case.padded(one), one) > 0.05


def test_average_equals_plain(case: Case) -> None:
    inputs = case.inputs(1, (3, 9, 5, 9, 4, 7))
    real = inputs.attention_mask.double()
    pairs = torch.einsum("bi,bj->ij", real, real)
    both = real[:, :, None] * real[:, None, :]
    expected = (case.attentions(inputs).double() * both[None, :, None]).sum(dim=1) / pairs.clamp(min=1)
    average = case.average(inputs[0:2], inputs[2:6]).result()
    assert float((average.matrices - expected).abs().max()) < 1e-7
    assert torch.equal(average.seen, pairs > 0)
    assert float(average.matrices[:, :, ~average.seen].abs().max()) == 0.0
    assert float((average.matrices - case.average(case.inputs(2)).result().matrices).abs().max()) > 0.01


def test_merged_shards_equal_one_pass_bit_for_bit(case: Case) -> None:
    batches = [case.inputs(seed) for seed in range(5)]
    whole = case.average(*batches)
    for cut in (1, 3):
        left, right = case.average(*batches[:cut]), case.average(*batches[cut:])
        left.merge(right.sums_so_far())
        assert torch.equal(left.sums, whole.sums)
        assert torch.equal(left.counts, whole.counts)
    assert not torch.equal(case.average(*batches[:4]).sums, whole.sums)


def test_the_encoder_is_whole_again_after_an_error(case: Case) -> None:
    inputs = case.inputs(1)
    before = case.encoder.hidden_states(inputs.compact())

    class Interruption(Exception):
        pass

    for block in (
        lambda: replaced(case.encoder, random_constants(case), HALF),
        lambda: mixed(case.encoder, random_constants(case), torch.zeros(case.encoder.layers, case.encoder.heads)),
    ):
        with suppress(Interruption), block():
            assert distance(case.encoder.hidden_states(inputs.compact()), before, inputs) > 0.05
            raise Interruption
        after = case.encoder.hidden_states(inputs.compact())
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_gradients_reach_theta_and_nothing_else(case: Case) -> None:
    theta = torch.zeros(case.encoder.layers, case.encoder.heads, requires_grad=True)
    with torch.enable_grad(), mixed(case.encoder, random_constants(case), theta):
        case.encoder.hidden_states(case.inputs(1).compact())[-1].square().sum().backward()
    assert theta.grad is not None
    assert bool((theta.grad != 0).all())
    assert all(parameter.grad is None for parameter in case.encoder.model.parameters())


def test_gradients_of_theta_equal_plain(case: Case) -> None:
    inputs, constants = case.inputs(1), random_constants(case)
    batch = inputs.compact()
    theta = torch.zeros(case.encoder.layers, case.encoder.heads, dtype=torch.float64, requires_grad=True)

    def gradient(states: Tensor) -> Tensor:
        return torch.autograd.grad(states[batch.attention_mask].pow(3).sum(), theta)[0]

    with torch.enable_grad():
        with mixed(case.encoder, constants, theta):
            ours = gradient(case.encoder.hidden_states(batch)[-1])
        with plainly(case.modules(), with_mix(constants.matrices, theta.sigmoid(), inputs.attention_mask)):
            plain = gradient(case.padded(inputs)[-1])
    assert float((ours - plain).abs().max() / plain.abs().max()) < TOLERANCE
    assert float((ours - plain.flip(0)).abs().max() / plain.abs().max()) > 0.01


@pytest.mark.parametrize("block", ["replaced", "mixed"])
def test_attention_dropout_keeps_the_mean(case: Case, block: str) -> None:
    """The authors' code drops entries of constant and mixed attention too: another draw each time, right on average."""
    inputs, constants = case.inputs(1), random_constants(case)
    theta = torch.zeros(case.encoder.layers, case.encoder.heads)
    held = (
        replaced(case.encoder, constants, case.heads) if block == "replaced" else mixed(case.encoder, constants, theta)
    )
    batch = inputs.compact()
    with held:
        rule = case.encoder.dispatch.rules[1]
        generator = torch.Generator().manual_seed(1)
        shape = (*batch.input_ids.shape, 8)
        query, key, value = (torch.randn(4, 4, shape[1], 8, generator=generator, dtype=torch.float64) for _ in range(3))
        mask = batch.attention_mask[:, None, None, :]

        def output(dropout: float) -> Tensor:
            return rule(OwnAttention(query, key, mask, 0.3, dropout=dropout), value, batch)

        torch.manual_seed(0)
        draws = torch.stack([output(0.2) for _ in range(600)])
        exact = output(0.0)
        assert float((draws[0] - draws[1]).abs().max()) > 0.1
        assert float((draws.mean(dim=0) - exact).abs().mean()) < 0.02
        assert float((draws[0] - exact).abs().mean()) > 0.05


def test_queries_and_keys_are_computed_for_own_heads_alone(case: Case) -> None:
    asked: list[int | None] = []

    class Watching:
        def __init__(self, rule) -> None:
            self.rule, self.own_heads = rule, rule.own_heads

        def __call__(self, own, value, batch):
            asked.append(None if self.own_heads.numel() == 0 else own.query.shape[1])
            return self.rule(own, value, batch)

    with replaced(case.encoder, random_constants(case), HALF):
        case.encoder.dispatch.rules = {layer: Watching(rule) for layer, rule in case.encoder.dispatch.rules.items()}
        case.encoder.hidden_states(case.inputs(1).compact())
    assert asked == [1, None, 3]


def test_coverage_counts_what_the_average_never_saw(case: Case) -> None:
    short, long = case.inputs(1, (3, 4)), case.inputs(2, (9,))
    constants = case.average(short).result()
    with replaced(case.encoder, constants, HALF) as coverage:
        case.encoder.hidden_states(short.compact())
        assert coverage.unseen_share == 0.0
        case.encoder.hidden_states(long.compact())
    assert coverage.unseen == 10 * 10 - 5 * 5
    assert coverage.asked == 4 * 4 + 5 * 5 + 10 * 10


def test_constants_of_another_shape_are_refused(case: Case) -> None:
    constants = ConstantMatrices(torch.rand(2, 4, SLOTS, SLOTS), torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average")
    with (
        pytest.raises(ArtifactError, match="2 layers of 4 heads, the encoder has 3 of 4"),
        replaced(case.encoder, constants, HALF),
    ):
        pass
