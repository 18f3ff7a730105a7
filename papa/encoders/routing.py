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


def any_own_heads(dispatch: Dispatch) -> bool:
    """Whether any head of the layer at hand needs its queries and keys."""
    own = dispatch.own_heads()
    return own is None or own.numel() > 0


def heads_apart(states: Float[Tensor, "batch m heads_width"], head_width: int) -> Float[Tensor, "batch heads m width"]:
    """One slice a head."""
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)


def heads_together(states: Float[Tensor, "batch heads m width"]) -> Float[Tensor, "batch m heads_width"]:
    """The inverse of ``heads_apart``."""
    return states.transpose(1, 2).flatten(-2)


def linear_of(weight: Float[Tensor, "out into"], bias: Float[Tensor, " out"] | None = None) -> nn.Linear:
    """A frozen linear map with these weights: one part of a fused map, so that its rows can be chosen alone."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
