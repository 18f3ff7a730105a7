"""What the blocks that change attention leave, compute, pass on and count, for every family."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.mixing import mixed
from papa.attention.replacement import replaced
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.linear import DependentHeadsProjection
from papa.errors import ArtifactError
from tests.attention.cases import HALF, Case, random_constants
from tests.encoders.inputs import SLOTS
from tests.encoders.models import DROPOUT

pytestmark = pytest.mark.usefixtures("no_gradients")

POSITION_TERMS = {
    "deberta": 2,
    "deberta_near": 1,
    "deberta_v3": 2,
    "deberta_v2_xlarge": 2,
    "deberta_v2_near": 1,
}
"""Projections of relative positions."""


def test_the_encoder_is_whole_again_after_an_error(case: Case) -> None:
    inputs = case.inputs(1)
    before = case.encoder.hidden_states(inputs.compact())

    class Interruption(Exception):
        pass

    for block in (
        lambda: replaced(case.encoder, random_constants(case), HALF),
        lambda: mixed(
            case.encoder,
            random_constants(case),
            torch.zeros(case.shape),
        ),
    ):
        with suppress(Interruption), block():
            assert case.away(inputs, before) > 0.05
            raise Interruption
        after = case.encoder.hidden_states(inputs.compact())
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_gradients_reach_theta_and_nothing_else(case: Case) -> None:
    theta = torch.zeros(case.shape, requires_grad=True)
    with torch.enable_grad(), mixed(case.encoder, random_constants(case), theta):
        case.encoder.hidden_states(case.inputs(1).compact())[-1].square().sum().backward()
    assert theta.grad is not None
    assert bool((theta.grad != 0).all())
    assert all(parameter.grad is None for parameter in case.encoder.model.parameters())


@pytest.mark.parametrize("block", ["replaced", "mixed"])
def test_attention_dropout_keeps_the_mean(case: Case, block: str) -> None:
    """The authors' code drops entries of constant and mixed attention too: another draw each time,
    right on average.
    """
    copies, constants = 20, random_constants(case)
    theta = torch.zeros(case.shape)
    held = (
        replaced(case.encoder, constants, case.heads)
        if block == "replaced"
        else mixed(case.encoder, constants, theta)
    )
    batch = case.inputs(1, (3, 9, 5, 9) * copies).compact()
    with held:
        rule = case.encoder.dispatch.rules[1]
        generator = torch.Generator().manual_seed(1)
        shape = (4, 4, batch.shape[1], 8)
        query, key, value = (
            torch.randn(shape, generator=generator, dtype=torch.float64).repeat(copies, 1, 1, 1)
            for _ in range(3)
        )
        mask = batch.attention_mask[:, None, None, :]

        def output(dropout: float) -> Tensor:
            found = rule(
                InputDependentAttention(query, key, mask, 0.3, dropout=dropout), value, batch
            )
            return found.unflatten(0, (copies, 4))

        torch.manual_seed(0)
        draws = torch.cat([output(0.2) for _ in range(600 // copies)])
        exact = output(0.0)[0]
        assert float((draws[0] - draws[1]).abs().max()) > 0.1
        assert float((draws.mean(dim=0) - exact).abs().mean()) < 0.02
        assert float((draws[0] - exact).abs().mean()) > 0.05


def test_projections_are_computed_for_own_heads_alone(case: Case) -> None:
    """Queries, keys and positions: of one head, of none (a view of what came in), of three."""
    computed: list[tuple[int, int | str]] = []

    def note(_, inputs, output) -> None:
        view = output.data_ptr() == inputs[0].data_ptr()
        computed.append(
            (
                case.encoder.dispatch.layer,
                "view" if view else output.shape[-1] // case.encoder.head_width,
            )
        )

    with replaced(case.encoder, random_constants(case), HALF):
        for module in case.encoder.model.modules():
            if isinstance(module, DependentHeadsProjection):
                module.register_forward_hook(note)
        case.encoder.hidden_states(case.inputs(1).compact())
    assert set(computed) == {(0, 1), (1, "view"), (2, 3)}
    assert len([layer for layer, _ in computed if layer == 0]) == 2 + POSITION_TERMS.get(
        case.variant, 0
    )
    assert not any(
        isinstance(module, DependentHeadsProjection) for module in case.encoder.model.modules()
    )


def test_attention_dropout_is_the_models_own(case: Case) -> None:
    """What a rule is told to drop: nothing in eval mode, the configuration's share in
    train mode.
    """
    told: list[float] = []

    class Listening:
        dependent_heads = None

        def __call__(self, own: InputDependentAttention, value: Tensor, batch) -> Tensor:
            told.append(own.dropout)
            return own.product(value)

    with case.encoder.ruled(dict.fromkeys(range(case.encoder.layers), Listening())):
        for training in (False, True, False):
            case.encoder.model.train(training)
            case.encoder.hidden_states(case.inputs(1).compact())
    assert told == [0.0] * 3 + [DROPOUT] * 3 + [0.0] * 3


def test_entries_that_the_average_had_never_seen_are_counted(case: Case) -> None:
    short, long = case.inputs(1, (3, 4)), case.inputs(2, (9,))
    constants = case.average(short).average()
    with replaced(case.encoder, constants, HALF) as entries:
        case.encoder.hidden_states(short.compact())
        assert entries.unseen_share == 0.0
        case.encoder.hidden_states(long.compact())
    assert entries.unseen == 10 * 10 - 5 * 5
    assert entries.read == 4 * 4 + 5 * 5 + 10 * 10


def test_constants_of_another_shape_are_refused(case: Case) -> None:
    constants = ConstantMatrices(
        torch.rand(2, 4, SLOTS, SLOTS), torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average"
    )
    with (
        pytest.raises(ArtifactError, match="2 layers of 4 heads, the encoder has 3 of 4"),
        replaced(case.encoder, constants, HALF),
    ):
        pass
