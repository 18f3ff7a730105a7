"""Heads of an encoder replaced, or mixed with constants; it is whole again after the block."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import product

from jaxtyping import Float
from torch import Tensor

from papa.heads.constants import ConstantMatrices, EntryCounts
from papa.heads.substitutes import Mixed, Substitute, rules_of
from papa.models.encoder import Encoder
from papa.spec.orders import Head


@contextmanager
def replaced(
    encoder: Encoder, substitute: Substitute, heads: Sequence[Head]
) -> Iterator[EntryCounts]:
    """Make ``heads`` output a substitute while the block runs; the others stay as they were
    (Section 3.1). Entries of constant matrices that inputs read are counted.
    """
    counts = EntryCounts()
    if isinstance(substitute, ConstantMatrices):
        substitute = replace(substitute, entries=counts)
    rules = rules_of(substitute.to(encoder.device), heads)
    with encoder.ruled(rules):
        yield counts


def mixed_by(
    encoder: Encoder, constants: ConstantMatrices, shares: Float[Tensor, "layers heads"]
) -> AbstractContextManager[object]:
    """Make every head output λ·A·V + (1-λ)·C·V while the block runs, where ``shares`` are λ (paper,
    Section 3.2), whose gradients serve one backward pass.
    """
    heads = [*product(range(encoder.layers), range(encoder.heads))]
    return replaced(encoder, Mixed(constants, shares), heads)
