"""What families share whose attention modules get a forward pass of PAPA's own."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import Dispatch


def batch_at_hand(dispatch: Dispatch) -> CompactBatch:
    """The compact batch of the forward pass in progress."""
    assert dispatch.batch is not None, "the model was called outside Encoder.hidden_states"
    return dispatch.batch


def slot_distances(dispatch: Dispatch) -> Int[Tensor, "m m"]:
    """How many slots query i stands after key j, for all columns of the batch at hand."""
    slots = batch_at_hand(dispatch).slots
    return slots[:, None] - slots


def heads_apart(states: Float[Tensor, "1 n heads_width"], head_width: int) -> Float[Tensor, "1 heads n width"]:
    """One slice a head."""
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)


def linear_of(weight: Float[Tensor, "out into"], bias: Float[Tensor, " out"] | None = None) -> nn.Linear:
    """A frozen linear map with these weights: one part of a fused map, so that its rows can be chosen alone."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
