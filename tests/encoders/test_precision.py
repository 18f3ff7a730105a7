"""bfloat16 as it runs on a CPU: the laws hold within its rounding."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from papa.attention.average import AttentionSums, averaging
from papa.attention.mixing import mixed
from papa.attention.replacement import replaced
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.precision import chosen_precision, has_bfloat16
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.errors import SpecError
from papa.spec import EncoderSpec, Precision
from tests.encoders.inputs import SLOTS, Inputs, some_inputs
from tests.encoders.models import MODELS, random_model

needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="this CPU does not multiply in bfloat16"
)
HEADS = [(layer, head) for layer in range(3) for head in range(4)]
WITHIN = 0.05
"""Of the difference that the negative control makes: bfloat16 keeps 8 bits, and attention here is
sharp.
"""


@dataclass(frozen=True)
class Pair:
    """One encoder in full and in half precision."""

    full: Encoder
    half: Encoder

    def inputs(self, seed: int, lengths: tuple[int, ...] = (3, 9, 5, 9)) -> Inputs:
        config = self.full.config
        segments = max(getattr(config, "type_vocab_size", 0), 1)
        return some_inputs(seed, lengths, pad=config.pad_token_id, segments=segments)

    def average(self, *batches: Inputs) -> AttentionSums:
        with averaging(self.half, SLOTS) as averager:
            for batch in batches:
                self.half.observe(batch.compact())
        return averager.result()


def paired(variant: str, precision: Precision) -> Pair:
    model = random_model(variant).float()
    return Pair(Encoder(copy.deepcopy(model)), Encoder(model, precision=precision))


@pytest.fixture(
    scope="module",
    params=[pytest.param(variant, marks=needs_bfloat16) for variant in sorted(MODELS)],
)
def pair(request: pytest.FixtureRequest) -> Pair:
    return paired(request.param, "bfloat16")


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def distance(encoder: Encoder, inputs: Inputs, expected: list[Tensor]) -> float:
    found = encoder.hidden_states(inputs.compact())
    assert all(states.dtype == torch.float32 for states in found)
    mask = inputs.compact().attention_mask
    return max(float((a - b)[mask].abs().max()) for a, b in zip(found, expected, strict=True))


def test_half_precision_is_near_full_precision(pair: Pair) -> None:
    inputs = pair.inputs(1)
    expected = pair.full.hidden_states(inputs.compact())
    difference = distance(pair.half, inputs, expected)
    assert 0 < difference < WITHIN * distance(pair.half, pair.inputs(2), expected)


def test_lambda_one_is_the_unmodified_encoder(pair: Pair) -> None:
    inputs = pair.inputs(1)
    constants = pair.average(pair.inputs(3)).average()
    expected = pair.half.hidden_states(inputs.compact())
    theta = torch.full((3, 4), 40.0)
    with mixed(pair.half, constants, theta):
        difference = distance(pair.half, inputs, expected)
    with mixed(pair.half, constants, theta * 0):
        assert difference < WITHIN * distance(pair.half, inputs, expected)


def test_constants_of_one_input_reproduce_its_forward_pass(pair: Pair) -> None:
    one, other = pair.inputs(1, (9,)), pair.inputs(2, (9,))
    expected = pair.half.hidden_states(one.compact())
    with replaced(pair.half, pair.average(one).average(), HEADS):
        difference = distance(pair.half, one, expected)
    with replaced(pair.half, pair.average(other).average(), HEADS):
        assert difference < 2 * WITHIN * distance(pair.half, one, expected)


def test_some_heads_replaced_are_near_full_precision(pair: Pair) -> None:
    inputs, constants = pair.inputs(1), pair.average(pair.inputs(3)).average()
    with replaced(pair.full, constants, HEADS[:5]):
        expected = pair.full.hidden_states(inputs.compact())
    with replaced(pair.half, constants, HEADS[:5]):
        difference = distance(pair.half, inputs, expected)
    assert difference < WITHIN * distance(pair.half, inputs, expected)


def test_sums_are_exact_in_half_precision_too(pair: Pair) -> None:
    """Attention is summed in float64 on the same grid, so shards merge bit for bit; rows still sum
    to 1.
    """
    batches = [pair.inputs(seed) for seed in range(3)]
    whole, left, right = (
        pair.average(*batches),
        pair.average(batches[0]),
        pair.average(*batches[1:]),
    )
    left.merge(right)
    assert whole.sums.dtype == torch.float64
    assert torch.equal(left.sums, whole.sums)
    matrices = pair.average(pair.inputs(1, (9,))).average().matrices
    sums = matrices.sum(-1)[..., :9]
    assert float((sums - 1).abs().max()) < 1e-5


@pytest.fixture
def without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that PyTorch finds no instructions for bfloat16 in."""
    without = dict.fromkeys(torch.cpu.get_capabilities(), False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: without)


@pytest.mark.usefixtures("without_bfloat16")
def test_what_a_cpu_lacks_is_refused_before_weights_are_read() -> None:
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED), "bfloat16")
    reason = (
        "precision: bfloat16 needs a GPU, or a CPU with AMX, .* set precision: float32, or auto"
    )
    with pytest.raises(SpecError, match=reason):
        load_encoder(replace(reference, folder="/nowhere"))


def test_auto_takes_bfloat16_for_known_encoders_on_a_cpu_that_has_it(
    request: pytest.FixtureRequest,
) -> None:
    expected = "bfloat16" if has_bfloat16() else "float32"
    assert chosen_precision("auto", [EMBEDDED], "cpu") == expected
    assert chosen_precision("auto", [EMBEDDED, "bert-base-cased"], "cpu") == "float32"
    assert chosen_precision("auto", [EMBEDDED], "cuda") == "float32"
    assert chosen_precision("bfloat16", ["bert-base-cased"], "cpu") == "bfloat16"
    request.getfixturevalue("without_bfloat16")
    assert chosen_precision("auto", [EMBEDDED], "cpu") == "float32"
