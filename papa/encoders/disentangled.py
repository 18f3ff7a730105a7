"""Disentangled attention (He et al., 2021), which DeBERTa's versions share: content and relative position apart.

The score of query i and key j is (q_i·k_j + q_i·P[r] + k_j·R[r]) · scaling, where r is the relative position of
their slots and P, R are projections of the relative positions' embeddings. Every input of a compact batch stands at
the same slots, so r is one matrix for the whole batch, and only the relative positions that occur are projected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import Dispatch, OwnAttention
from papa.encoders.routing import batch_at_hand, heads_apart, slot_distances


@dataclass(frozen=True)
class Projections:
    """What the linear maps of an attention module are called.

    Attributes:
        query, key, value: of the content.
        position_key: of relative positions, met by queries (c2p); None where this term is off.
        position_query: of relative positions, met by keys (p2c); None where this term is off.
        terms: how many terms the scaling 1/√(head width · terms) counts.
    """

    query: str
    key: str
    value: str
    position_key: str | None
    position_query: str | None
    terms: int


def route_disentangled(module: nn.Module, dispatch: Dispatch, projections: Projections) -> None:
    """Send the attention of a ``DisentangledSelfAttention`` through the dispatch."""
    module.forward = partial(_attend, module, dispatch, projections)


def _attend(
    module: Any,
    dispatch: Dispatch,
    projections: Projections,
    hidden_states: Float[Tensor, "1 tokens width"],
    *_: object,
    relative_pos: Int[Tensor, "m m"] | None = None,
    rel_embeddings: Float[Tensor, "relative width"] | None = None,
    **__: object,
) -> tuple[Float[Tensor, "1 tokens width"], None]:
    head_width: int = module.attention_head_size
    query, key, value = (
        heads_apart(getattr(module, name)(hidden_states), head_width)
        for name in (projections.query, projections.key, projections.value)
    )
    scaling = (head_width * projections.terms) ** -0.5
    bias = None
    query, key = dispatch.own_apart(query, key)
    if dispatch.any_own_heads() and relative_pos is not None and rel_embeddings is not None:
        embeddings = module.pos_dropout(rel_embeddings)[None]
        bias = _position_scores(module, projections, query * scaling, key * scaling, relative_pos, embeddings)
    dropout = module.dropout.p if module.training else 0.0
    own = OwnAttention(query, key, dispatch.mask, scaling, bias, dropout)
    return dispatch.together(dispatch.attend(own, dispatch.apart(value))).flatten(2), None


def _position_scores(
    module: Any,
    projections: Projections,
    query: Float[Tensor, "batch own m head_width"],
    key: Float[Tensor, "batch own m head_width"],
    relative: Int[Tensor, "m m"],
    embeddings: Float[Tensor, "1 relative width"],
) -> Float[Tensor, "batch own m m"] | None:
    """Both terms in which positions take part: against every relative position once, then read at each pair."""
    pairs = (*query.shape[:2], *relative.shape)
    scores = None
    if projections.position_key is not None:
        positions = heads_apart(getattr(module, projections.position_key)(embeddings), query.shape[-1])
        scores = (query @ positions.transpose(-1, -2)).gather(-1, relative.expand(pairs))
    if projections.position_query is not None:
        positions = heads_apart(getattr(module, projections.position_query)(embeddings), query.shape[-1])
        by_key = (key @ positions.transpose(-1, -2)).gather(-1, relative.T.expand(pairs)).transpose(-1, -2)
        scores = by_key if scores is None else scores + by_key
    return scores


class SlotPositions:
    """Relative positions of slots, where the stock encoder would count columns.

    Stands in for two methods of a DeBERTa encoder: ``get_rel_pos`` and ``get_rel_embedding``. Together they name,
    for each pair of columns, a row of the relative embeddings that occur in the batch.

    Args:
        encoder: the stack of layers.
        dispatch: knows the batch at hand.
        row: from slot distances to rows of all relative embeddings.
    """

    def __init__(self, encoder: Any, dispatch: Dispatch, row: Callable[[Tensor], Tensor]) -> None:
        self._all_embeddings = encoder.get_rel_embedding
        self._dispatch = dispatch
        self._row = row
        self._batch: CompactBatch | None = None
        self._occurring: tuple[Tensor, Tensor]

    def rows_and_pairs(self) -> tuple[Int[Tensor, " relative"], Int[Tensor, "m m"]]:
        """The rows that occur, ascending, and for each pair of columns which of them is meant; once a batch."""
        batch = batch_at_hand(self._dispatch)
        if batch is not self._batch:
            # The same batch may come again with gradients, which tensors made in inference mode cannot serve.
            with torch.inference_mode(False):
                rows, pairs = torch.unique(self._row(slot_distances(self._dispatch)), return_inverse=True)
            self._batch, self._occurring = batch, (rows, pairs)
        return self._occurring

    def get_rel_pos(self, *_: object, **__: object) -> Int[Tensor, "m m"]:
        """For each pair of columns, which of the rows of ``get_rel_embedding`` is meant."""
        return self.rows_and_pairs()[1]

    def get_rel_embedding(self) -> Float[Tensor, "relative width"]:
        """The embeddings of the relative positions that occur."""
        return self._all_embeddings()[self.rows_and_pairs()[0]]


def count_slots(encoder: Any, dispatch: Dispatch, row: Callable[[Tensor], Tensor]) -> None:
    """Make a DeBERTa encoder's relative positions those of slots, where it has some; and build no mask of its own.

    That mask would be a square of all tokens, which the batch's own mask makes needless.
    """
    encoder.get_attention_mask = lambda attention_mask: attention_mask
    if encoder.relative_attention:
        positions = SlotPositions(encoder, dispatch, row)
        encoder.get_rel_pos, encoder.get_rel_embedding = positions.get_rel_pos, positions.get_rel_embedding


def model_inputs(batch: CompactBatch, config: Any) -> dict[str, Tensor]:
    """Absolute positions, where a model has them, are slots; the mask clears embeddings of columns without a token."""
    return {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask.long(),
        "token_type_ids": batch.token_type_ids,
        "position_ids": batch.slots[None],
    }
