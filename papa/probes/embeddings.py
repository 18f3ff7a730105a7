"""An encoder's word embeddings alone, as the features of a probe: what a score owes to words and not to attention."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.encoder import Encoder


@runtime_checkable
class FeatureModel(Protocol):
    """What features need of a frozen model: an ``Encoder``, or its word embeddings alone."""

    model: nn.Module
    config: Any
    layers: int
    width: int
    device: torch.device

    @property
    def word_embeddings(self) -> Float[Tensor, "vocabulary embedding"]: ...

    def tokens_a_batch(self, asked: int | None) -> int: ...

    def token_states(self, batch: CompactBatch) -> list[Float[Tensor, "tokens width"]]: ...


class WordEmbeddings:
    """The word embedding of each token: no positions, no layers, so ``layers`` is 0 and there is one hidden state.

    Args:
        encoder: whose; it stays as it is.

    Attributes:
        width: e, which some encoders (ALBERT, small ELECTRA) have smaller than d.
    """

    layers = 0

    def __init__(self, encoder: Encoder) -> None:
        self.model: nn.Module = encoder.model.get_input_embeddings()  # type: ignore[operator]
        self.config = encoder.config
        self.word_embeddings = encoder.word_embeddings
        self.device = encoder.device
        self.width = self.word_embeddings.shape[1]
        self.tokens_a_batch = encoder.tokens_a_batch

    def token_states(self, batch: CompactBatch) -> list[Float[Tensor, "tokens embedding"]]:
        """The embedding of each real token, input by input."""
        return [self.word_embeddings[batch.input_ids.to(self.device)].float()]
