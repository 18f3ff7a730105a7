"""NaN and infinity in what an encoder computes: seen in one sum, then traced to their cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import MicroBatch
from papa.errors import NumbersError


def sum_is_finite(numbers: Float[Tensor, "..."]) -> bool:
    """Whether the sum of the numbers is finite: no NaN and no infinite one is among them."""
    # Half precision could not hold the sum of what it holds.
    return bool(
        numbers.detach().sum(dtype=torch.promote_types(numbers.dtype, torch.float32)).isfinite()
    )


def check_states(
    model: nn.Module, layers: Sequence[Float[Tensor, "tokens width"]], batch: MicroBatch
) -> None:
    """Refuse hidden states, embeddings first, with NaN or infinity, which every later layer of the
    same token inherits.
    """
    if sum_is_finite(layers[-1]):
        return
    for number, states in enumerate(layers):
        odd = (~states.detach().isfinite()).any(dim=1)
        if bool(odd.any()):
            token = int(odd.nonzero()[0, 0])
            row = int(batch.rows[batch.inputs_of_tokens[token]])
            what = f"the output of layer {number - 1}" if number else "the embeddings"
            raise NumbersError(f"{what} of row {row + 1}", _reason(model))


def _reason(model: nn.Module) -> str:
    odd = [name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())]
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        return f"so do the encoder's weights {odd[0]}{more}: use other weights"
    return (
        "the encoder's weights are finite: look at their size, or lower the learning rate where "
        "matrices are trained"
    )


@contextmanager
def numbers_of(where: str) -> Iterator[None]:
    """NaN or infinity found inside the block is said to be in ``where``, such as a batch."""
    try:
        yield
    except NumbersError as error:
        raise error.within(where) from None
