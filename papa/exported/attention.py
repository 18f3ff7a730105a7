"""The attention of an export. Constant heads mix in columns, one for each slot that a batch uses,
so that their matrices are read once for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from papa.heads.constants import constant_product
from papa.models.dispatch import Attend, ScoreBias

TYPE = "papa_constant_heads"
"""The type of model, and the name of its attention."""


class PassTokens(NamedTuple):
    """Where the tokens of one pass stand. A column is a slot that some input of the batch uses.

    Attributes:
        columns: [columns], the slot of each column.
        column_ids: [batch, tokens], the column of each token; of padding one after the last.
        is_filled: [batch, columns], where an input has a token.
        real: [batch, tokens], which tokens are no padding.
        positions: [batch, tokens], what windows and relative positions count.
        calls: How many layers have attended, by the first of those that share a module.
    """

    columns: Tensor
    column_ids: Tensor
    is_filled: Tensor
    real: Tensor
    positions: Tensor
    calls: dict[int, int]


CURRENT_TOKENS: ContextVar[PassTokens] = ContextVar("current_tokens")
"""The tokens of the pass that runs in this thread."""


class CurrentPass:
    """The pass of a model whose layers are handed no options; an ``AttentionPass``."""

    reads_masks = False

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def attention_function(self) -> Attend:
        return partial(_attention, papa=CURRENT_TOKENS.get())

    def distances(self, tokens: Tensor) -> Tensor:
        positions = CURRENT_TOKENS.get().positions
        return positions[:, :, None] - positions[:, None, :]

    def over_slots(self, convolve: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
        tokens = CURRENT_TOKENS.get()
        positions = tokens.positions.where(tokens.real, self.slots)
        positions = positions[:, None].expand_as(states)
        spread = states.new_zeros(*states.shape[:2], self.slots + 1).scatter(2, positions, states)
        return convolve(spread[..., :-1]).gather(2, positions.clamp(max=self.slots - 1))


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _: object,
    scaling: float | None = None,
    *,
    papa: PassTokens,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    position_bias: Tensor | None = None,
    score_bias: ScoreBias | None = None,
    **__: object,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention for transformers' attention interface: [batch, heads, m, width] becomes
    [batch, m, heads, width]. Queries and keys are those of all heads, or of those that are not
    constant.
    """
    # Layers may share a module, which holds the constants of all of them, one after another.
    call = papa.calls.get(module.first_layer, 0)
    papa.calls[module.first_layer] = (call + 1) % len(module.constant_counts)
    constants = module.constants.split(module.constant_counts)[call]
    order = module.head_order[call]
    constant_heads = order[: len(constants)]
    dependent_heads = order[len(constants) :]
    outputs: list[Tensor] = []
    if len(constant_heads):
        outputs.append(
            _outputs_of_constant_heads(
                constants, _states_of_heads(value, constant_heads), papa, dropout
            )
        )
    if len(dependent_heads):
        query = _states_of_heads(query, dependent_heads)
        key = _states_of_heads(key, dependent_heads)
        mask = papa.real[:, None, None]
        if sliding_window:
            positions = papa.positions
            distances = (positions[:, None, :, None] - positions[:, None, None]).abs()
            # Padding sees itself, or its softmax would be NaN.
            itself = torch.eye(positions.shape[1], dtype=torch.bool, device=positions.device)
            mask = (distances < sliding_window) & mask | itself
        bias = None if position_bias is None else _states_of_heads(position_bias, dependent_heads)
        if score_bias is not None:
            bias = score_bias(query, key)
        if bias is not None:
            bias = bias.to(query.dtype)
            mask = bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
        outputs.append(
            scaled_dot_product_attention(
                query, key, _states_of_heads(value, dependent_heads), mask, dropout, scale=scaling
            )
        )
    output = torch.cat(outputs, dim=1)
    if len(outputs) > 1:
        output = torch.empty_like(output).index_copy(1, order, output)
    return output.transpose(1, 2).contiguous(), None


def _states_of_heads(states: Tensor, heads: Tensor) -> Tensor:
    """Return the states of these heads; as they are where they are of no others."""
    return states if states.shape[1] == len(heads) else states.index_select(1, heads)


def _outputs_of_constant_heads(
    constants: Tensor, value: Tensor, tokens: PassTokens, dropout: float
) -> Tensor:
    """Return what constant heads output: [batch, heads, tokens, width], from ``value`` of that
    shape.
    """
    columns = tokens.columns
    size = columns.shape[0]
    column_ids = tokens.column_ids[:, None, :, None].expand_as(value)
    # Not len(), which is a number where a graph is traced and sizes are symbols. Padding goes into
    # one more column, which is dropped.
    shape = (value.shape[0], value.shape[1], size + 1, value.shape[-1])
    by_column = value.new_zeros(shape).scatter(2, column_ids, value)[:, :, :-1]
    # By a flat look-up: one along the last axis is slow.
    entries = (columns[:, None] * constants.shape[-1] + columns).flatten()
    matrices = constants.flatten(1).index_select(1, entries).view(-1, size, size)
    outputs = constant_product(matrices, by_column, tokens.is_filled, dropout)
    return outputs.gather(2, column_ids.clamp(max=size - 1))


transformers.AttentionInterface.register(TYPE, _attention)
transformers.AttentionMaskInterface.register(TYPE, lambda *_, **__: None)
