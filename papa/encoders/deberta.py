"""DeBERTa: disentangled attention (He et al., 2021), in which content and relative position are
scored separately.

The score of query i and key j is (q_i·k_j + q_i·P[r] + k_j·R[r]) · scaling, where r is the relative
position of their slots and P, R are projections of the relative positions' embeddings. All inputs
of a micro-batch have the same columns, so r is one matrix for the whole batch, and only the
relative positions that occur are projected.

The first version has queries, keys and values in one projection and cuts relative positions off at
a distance. The second and third put them in logarithmic buckets, and v2-xlarge adds a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig

from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import (
    Dispatch,
    InputDependentAttention,
    at_least_single,
    split_heads,
)
from papa.encoders.family import Family
from papa.encoders.linear import linear_of


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
        split_heads(getattr(module, name)(hidden_states), head_width)
        for name in (projections.query, projections.key, projections.value)
    )
    scaling = (head_width * projections.terms) ** -0.5
    bias = None
    query, key = dispatch.unpack_projected(query, key)
    if dispatch.any_dependent_heads() and relative_pos is not None and rel_embeddings is not None:
        embeddings = module.pos_dropout(rel_embeddings)[None]
        # A bias is added to scores that are scaled already.
        scaled = at_least_single(query) * scaling, at_least_single(key) * scaling
        bias = _position_scores(module, projections, *scaled, relative_pos, embeddings)
    dropout = module.dropout.p if module.training else 0.0
    own = InputDependentAttention(query, key, dispatch.mask, scaling, bias, dropout)
    return dispatch.attend(own, value).flatten(2), None


def _position_scores(
    module: Any,
    projections: Projections,
    query: Float[Tensor, "batch dependent m head_width"],
    key: Float[Tensor, "batch dependent m head_width"],
    relative: Int[Tensor, "m m"],
    embeddings: Float[Tensor, "1 relative width"],
) -> Float[Tensor, "batch dependent m m"] | None:
    """Both terms with positions: against every relative one once, then read at each pair."""

    def read(states: Tensor, projection: str, pairs: Int[Tensor, "m m"]) -> Tensor:
        positions = split_heads(getattr(module, projection)(embeddings), query.shape[-1])
        by_position = states @ positions.to(states.dtype).transpose(-1, -2)
        return by_position.gather(-1, pairs.expand(*query.shape[:2], *pairs.shape))

    scores = None
    if projections.position_key is not None:
        scores = read(query, projections.position_key, relative)
    if projections.position_query is not None:
        # Rows are keys here: pairs are read as [j, i] and turned.
        by_key = read(key, projections.position_query, relative.T).transpose(-1, -2)
        scores = by_key if scores is None else scores + by_key
    return scores


class SlotPositions:
    """Relative positions of slots, where the stock encoder would count columns.

    Its two methods stand in for those of a DeBERTa encoder. Together they name, for each pair of
    columns, a row of the relative embeddings that occur in the batch; ``row`` is from slot
    distances to rows of all relative embeddings.
    """

    def __init__(self, encoder: Any, dispatch: Dispatch, row: Callable[[Tensor], Tensor]) -> None:
        self._all_embeddings = encoder.get_rel_embedding
        self._dispatch = dispatch
        self._row = row
        self._batch: MicroBatch | None = None
        self._occurring: tuple[Tensor, Tensor]

    def _rows_and_pairs(self) -> tuple[Int[Tensor, " relative"], Int[Tensor, "m m"]]:
        """The rows that occur, ascending, and which of them each pair of columns means."""
        batch = self._dispatch.current_batch
        if batch is not self._batch:
            # The same batch may come again with gradients, which tensors made in inference mode
            # cannot serve.
            with torch.inference_mode(False):
                self._occurring = torch.unique(self._rows(), return_inverse=True)
            self._batch = batch
        return self._occurring

    def _rows(self) -> Int[Tensor, "m m"]:
        return self._row(self._dispatch.slot_distances())

    def get_rel_pos(self, *_: object, **__: object) -> Int[Tensor, "m m"]:
        return self._rows_and_pairs()[1]

    def get_rel_embedding(self) -> Float[Tensor, "relative width"]:
        return self._all_embeddings()[self._rows_and_pairs()[0]]


def count_slots(encoder: Any, dispatch: Dispatch, row: Callable[[Tensor], Tensor]) -> None:
    """Make a DeBERTa encoder's relative positions those of slots, where it has some; and build no
    mask of its own, which would be a square of all tokens.
    """
    encoder.get_attention_mask = lambda attention_mask: attention_mask
    if encoder.relative_attention:
        positions = SlotPositions(encoder, dispatch, row)
        encoder.get_rel_pos = positions.get_rel_pos
        encoder.get_rel_embedding = positions.get_rel_embedding


def _route_v1(module: Any, dispatch: Dispatch) -> None:
    """Split the fused projection; each head's rows are its query, key and value, in this order."""
    heads, head_width = module.num_attention_heads, module.attention_head_size
    fused = module.in_proj.weight.view(heads, 3, head_width, -1)
    query, key, value = (fused[:, part].flatten(0, 1) for part in range(3))
    module.query = linear_of(query, module.q_bias.data)
    # The first version has no bias on keys.
    module.key = linear_of(key)
    module.value = linear_of(value, module.v_bias.data)
    del module.in_proj, module.q_bias, module.v_bias
    kinds = module.pos_att_type
    projections = Projections(
        query="query",
        key="key",
        value="value",
        position_key="pos_proj" if "c2p" in kinds else None,
        position_query="pos_q_proj" if "p2c" in kinds else None,
        terms=1 + len(kinds),
    )
    module.forward = partial(_attend, module, dispatch, projections)


def _stored_v1(module: Any) -> dict[str, Tensor]:
    maps = (module.query.weight, module.key.weight, module.value.weight)
    by_head = [weight.unflatten(0, (module.num_attention_heads, 1, -1)) for weight in maps]
    return {
        "in_proj.weight": torch.cat(by_head, dim=1).flatten(0, 2),
        "q_bias": module.query.bias,
        "v_bias": module.value.bias,
    }


def _prepare_v1(model: Any, dispatch: Dispatch) -> None:
    def row(distances: Tensor) -> Tensor:
        furthest = model.encoder.max_relative_positions
        return distances.clamp(-furthest, furthest - 1) + furthest

    count_slots(model.encoder, dispatch, row)


def _refuse(config: PreTrainedConfig) -> str | None:
    if getattr(config, "talking_head", False):
        return (
            "talking heads mix the attention of all heads, so none can be made constant alone: "
            "use a model without"
        )
    return None


DEBERTA = Family(
    name="DeBERTa",
    model_types=("deberta",),
    projections=("query", "key", "pos_proj", "pos_q_proj"),
    route=_route_v1,
    prepare=_prepare_v1,
    stored=_stored_v1,
    refuse=_refuse,
    note="relative positions are distances of slots; talking heads are not supported",
    attention_implementation="eager",
)


def _route_v2(module: Any, dispatch: Dispatch) -> None:
    kinds, shared = module.pos_att_type, module.share_att_key
    projections = Projections(
        query="query_proj",
        key="key_proj",
        value="value_proj",
        position_key=("key_proj" if shared else "pos_key_proj") if "c2p" in kinds else None,
        position_query=("query_proj" if shared else "pos_query_proj") if "p2c" in kinds else None,
        terms=1 + ("c2p" in kinds) + ("p2c" in kinds),
    )
    module.forward = partial(_attend, module, dispatch, projections)


def _prepare_v2(model: Any, dispatch: Dispatch) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    encoder = model.encoder

    def row(distances: Tensor) -> Tensor:
        buckets, furthest = encoder.position_buckets, encoder.max_relative_positions
        if buckets > 0:
            distances = make_log_bucket_position(distances, buckets, furthest).long()
            furthest = buckets
        return (distances + furthest).clamp(0, 2 * furthest - 1)

    count_slots(encoder, dispatch, row)
    if encoder.conv is not None:
        encoder.conv.conv = SlotConvolution(encoder.conv.conv, dispatch)


class SlotConvolution(nn.Module):
    """A convolution over slots: columns are put at their slots, and slots that no input uses hold
    zeros.

    With padding those slots hold zeros too, because the mask has cleared them.
    """

    def __init__(self, convolution: nn.Conv1d, dispatch: Dispatch) -> None:
        super().__init__()
        self.convolution = convolution
        self.dispatch = dispatch

    def forward(self, states: Float[Tensor, "1 width tokens"]) -> Float[Tensor, "1 width tokens"]:
        batch = self.dispatch.current_batch
        unpacked = batch.unpack(states.transpose(1, 2)) * batch.attention_mask[..., None]
        spread = unpacked.new_zeros(len(unpacked), states.shape[1], int(batch.columns[-1]) + 1)
        spread = torch.index_copy(spread, -1, batch.columns, unpacked.transpose(1, 2))
        return batch.pack(self.convolution(spread)[..., batch.columns].transpose(1, 2)).transpose(
            1, 2
        )


DEBERTA_V2 = Family(
    name="DeBERTa v2/v3",
    model_types=("deberta-v2",),
    projections=("query_proj", "key_proj", "pos_key_proj", "pos_query_proj"),
    value="value_proj",
    route=_route_v2,
    prepare=_prepare_v2,
    note=(
        "relative positions are buckets of distances of slots; so is the convolution of v2-xlarge "
        "and v2-xxlarge"
    ),
    attention_implementation="eager",
)
