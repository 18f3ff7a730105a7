"""Where the queries and keys of an attention call stand in their texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class TokenSlots:
    """Where the queries and keys of a call stand in their texts.

    Attributes:
        queries, keys: the slot of each; one row where all inputs have the same.
        real, lengths: which queries are tokens, and how many each input has up to the last query.
        last: the slot of each text's last token where it is apart, as in an encoder; else -1.
        longest: how many slots matrices need, of padded texts.
    """

    queries: Int[Tensor, "#batch queries"]
    keys: Int[Tensor, "#batch keys"]
    real: Bool[Tensor, "batch queries"]
    lengths: Int[Tensor, " batch"]
    last: Int[Tensor, "#batch 1 1"]
    longest: int = 0

    def of_queries(self, queries: slice) -> TokenSlots:
        """Return the slots of a call with some of the queries."""
        return replace(self, queries=self.queries[:, queries], real=self.real[:, queries])


def packed_slots(
    slots: Int[Tensor, "#batch tokens"], real: Bool[Tensor, "batch tokens"], causal: bool
) -> TokenSlots:
    """Return the slots of a packed batch, which its layout knows."""
    last_slots = _last_slots(slots, real, causal)
    return TokenSlots(slots, slots, real, real.sum(dim=1), last_slots)


def padded_slots(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    position_ids: Tensor | None,
    causal: bool,
    *,
    seen_real: Bool[Tensor, "batch seen"] | None,
    before: Int[Tensor, "batch 1"] | int,
) -> TokenSlots:
    """Return slots of padded texts, counted from the first token of each.

    Texts may be padded on either side: in a causal model real tokens count, and keys may come from
    a cache of a fixed size or of a window. Arguments are those of the attention call and of
    ``papa.models.dispatch.Dispatch``.
    """
    queries = query.shape[-2]
    keys = key.shape[-2]
    device = query.device
    if seen_real is not None and len(seen_real) != len(query):
        # The model has folded several rows into one text, as MusicGen does with codebooks.
        seen_real = None
    # The key at which the first query itself stands.
    first_query = 0
    if seen_real is not None and not causal and seen_real.shape[1] == keys:
        padding = seen_real.int().argmax(dim=1)[:, None].to(device)
        slots = (torch.arange(keys, device=device) - padding).clamp(min=0)
        query_slots = _in_one_row(slots, seen_real.to(device))
        key_slots = query_slots
    elif seen_real is not None and causal:
        real_before = (seen_real.long().cumsum(dim=1) - 1).clamp(min=0)
        slots = _in_one_row((real_before + before).to(device), seen_real.to(device))
        # A cache of a fixed size has keys to come, one of a window has lost the first.
        first_query = min(keys, slots.shape[1]) - queries
        query_slots = slots[:, -queries:]
        key_slots = F.pad(slots, (0, max(0, keys - slots.shape[1])))[:, -keys:]
    else:
        end = keys if position_ids is None else int(position_ids[..., -1].max()) + 1
        indices = torch.arange(max(keys, end), device=device)[None]
        query_slots = indices[:, end - queries : end]
        keys_are_last = not causal or end > keys
        first_query = (keys if keys_are_last else end) - queries
        key_slots = indices[:, -keys:] if keys_are_last else indices[:, :keys]
    # Tokens, and no padding, may look at themselves.
    allowed = query.new_ones(1, 1, 1, keys, dtype=torch.bool) if mask is None else mask
    square = allowed[:, 0].expand(len(query), queries, -1)
    real = square.diagonal(offset=first_query, dim1=-2, dim2=-1)
    lengths = (query_slots * real).amax(dim=1) + 1
    last_slots = _last_slots(query_slots, real, causal)
    return TokenSlots(query_slots, key_slots, real, lengths, last_slots, int(key_slots.max()) + 1)


def _in_one_row(
    slots: Int[Tensor, "batch tokens"], real: Bool[Tensor, "batch tokens"]
) -> Int[Tensor, "#batch tokens"]:
    """Return slots that are the same in all texts, as of padding on the right, as one row: matrices
    are then read, and attention is added up, once for all texts.
    """
    row = slots.amax(dim=0, keepdim=True)
    return row if bool(((slots == row) | ~real).all()) else slots


def _last_slots(
    slots: Int[Tensor, "#batch queries"], real: Bool[Tensor, "batch queries"], causal: bool
) -> Int[Tensor, "#batch 1 1"]:
    """Return the slot of each text's last token; -1 in a causal model, where it is no special
    one.
    """
    last = (slots * real).amax(dim=1)
    return last.new_full((1, 1, 1), -1) if causal else last[:, None, None]


def no_slots(query: Tensor, key: Tensor) -> TokenSlots:
    """Return slots of attention without rules, such as a decoder's to an encoder's tokens."""
    zeros = query.new_zeros
    return TokenSlots(
        queries=zeros(1, query.shape[-2], dtype=torch.long),
        keys=zeros(1, key.shape[-2], dtype=torch.long),
        real=zeros(len(query), query.shape[-2], dtype=torch.bool),
        lengths=zeros(len(query), dtype=torch.long),
        last=zeros(1, 1, 1, dtype=torch.long),
    )
