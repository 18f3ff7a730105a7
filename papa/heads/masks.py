"""What the masks, positions and cache of a forward pass say about its texts."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from papa.errors import DataError
from papa.models.dispatch import visible

INPUTS = ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds")
"""What a model may be called with in place of token ids."""


def check_rows(mask: object, real: Bool[Tensor, "batch tokens"] | None) -> None:
    """Raise an error if a mask of queries and keys splits a row into texts: a token that does not
    attend to the one before it begins another text.
    """
    mask = _whole_mask(mask)
    if not isinstance(mask, Tensor) or mask.dim() != 4 or real is None:
        return
    allowed = visible(mask)[:, 0]
    queries = allowed.shape[1]
    first = 0 if queries == allowed.shape[2] else real.shape[1] - queries
    # Tokens see themselves; rows of padding see nothing, or all.
    token = allowed.diagonal(first, 1, 2) & ~allowed.all(dim=2)
    sees_before = allowed[:, 1:].diagonal(first, 1, 2)
    if (token[:, 1:] & token[:, :-1] & ~sees_before).any():
        raise DataError(
            "attention_mask separates the texts of a packed row: give each text its own row, "
            "padded on the right or the left"
        )


def lost_tokens(
    inputs: Mapping[str, object], real: Bool[Tensor, "batch tokens"] | None
) -> Int[Tensor, "batch 1"] | int:
    """Return how many tokens each text has before those of a mask that holds the keys of a window
    alone, as generation with a cache of a fixed size gives it.
    """
    mask = _whole_mask(inputs.get("attention_mask"))
    cache = inputs.get("past_key_values")
    queries = next((inputs[name] for name in INPUTS if isinstance(inputs.get(name), Tensor)), None)
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        return 0
    if real is None or not isinstance(queries, Tensor) or not hasattr(cache, "get_seq_length"):
        return 0
    lost = int(cache.get_seq_length()) + queries.shape[1] - mask.shape[-1]
    if lost <= 0:
        return 0
    positions = inputs.get("position_ids")
    # Positions tell padding that the window no longer holds from tokens.
    if isinstance(positions, Tensor) and positions.dim() == 2:
        return positions[:, -1:].to(real.device) + 1 - real.sum(dim=1, keepdim=True)
    return lost


def _whole_mask(mask: object) -> object:
    """Return, of masks by kind of layer, the one of layers that attend to all tokens, if there is
    one.
    """
    if isinstance(mask, Mapping):
        return mask.get("full_attention", next(iter(mask.values()), None))
    return mask


def real_tokens(mask: object) -> Bool[Tensor, "batch tokens"] | None:
    """Return which tokens are no padding; None without a mask that says it.

    A mask of tokens [batch, tokens] says it directly. In a mask of queries and keys a token is real
    if the query of a later one attends to it, and so is the last token; the axis is cut off after
    the last token of the pass.
    """
    mask = _whole_mask(mask)
    if not isinstance(mask, Tensor) or mask.dim() not in (2, 4):
        return None
    if mask.dim() == 2:
        return mask.bool()
    allowed = visible(mask)[:, 0]
    keys = torch.arange(mask.shape[-1], device=mask.device)
    last_keys = (allowed * keys).amax(dim=-1)
    # Without a cache all keys are of this pass, also those that only pad the longest text.
    is_square = mask.shape[-2] == mask.shape[-1]
    length = mask.shape[-1] if is_square else int(last_keys[:, -1].max()) + 1
    # Rows of padding may see all.
    whole = allowed.all(dim=-1, keepdim=True)
    whole[:, -1] = False
    real = (allowed & ~whole & (keys < last_keys[..., None])).any(dim=1)
    return (real | (keys == last_keys[:, -1:]) & allowed[:, -1])[:, :length]
