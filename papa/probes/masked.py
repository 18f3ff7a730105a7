"""The probe for masked language modelling, and its loss without the [tokens, vocabulary] table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from papa.corpora.tokens import IGNORED
from papa.probes.packed import PackedFeatures
from papa.probes.probes import Probe, SeedLinear, generators_of, tokens_by_seed

_CHUNK_LOGITS = 2**24
"""Logits held at a time: 64 MiB in float32."""


class MaskedProbe(Probe):
    """The word under each masked token (paper, Section 5.5 and App. B).

    Concat of the layers → Linear d → GELU → decoder on the encoder's own word embeddings, frozen, +
    a learned bias. Encoders whose word embeddings have another width e than d (ALBERT, small
    ELECTRA) have one more Linear, d → e, before the decoder. ``layers`` is L+1, the embeddings
    counted.
    """

    word_embeddings: Tensor

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        layers: int,
        width: int,
        word_embeddings: Float[Tensor, "vocabulary width_e"],
    ) -> None:
        super().__init__()
        generators = generators_of(seeds)
        vocabulary, embedding_width = word_embeddings.shape
        self.dense = SeedLinear(generators, layers * width, width)
        self.narrow = (
            SeedLinear(generators, width, embedding_width)
            if embedding_width != width
            else nn.Identity()
        )
        self.bias = nn.Parameter(torch.zeros(len(seeds), vocabulary))
        self.register_buffer(
            "word_embeddings", word_embeddings.detach().to(torch.float32), persistent=False
        )

    def forward(
        self, tokens: Float[Tensor, "seeds n layers_width"]
    ) -> Float[Tensor, "seeds n width_e"]:
        """What the decoder reads."""
        return self.narrow(F.gelu(self.dense(tokens)))

    def losses(
        self,
        features: PackedFeatures,
        rows: Int[Tensor, "seeds batch"],
        dropout_seeds: Sequence[int] | None = None,
    ) -> Float[Tensor, " seeds"]:
        tokens, labels = tokens_by_seed(features, rows)
        return DecoderLosses.apply(self(tokens), self.word_embeddings, self.bias, labels)

    def predictions(
        self, features: PackedFeatures, rows: Int[Tensor, " n"]
    ) -> Shaped[Tensor, "seeds predictions"]:
        """The natural log-probability that each masked token's true word receives."""
        tokens, _ = features.tokens_of(rows)
        on_device = tokens.to(features.device)
        values = features.values[on_device].flatten(1).to(torch.float32)
        labels = features.labels[on_device]
        hidden = self(values.expand(len(self.bias), -1, -1))
        log_probabilities = torch.empty(hidden.shape[:2], device=hidden.device)
        for seed, part in _chunks(hidden, len(self.word_embeddings)):
            logits = torch.addmm(self.bias[seed], hidden[seed, part], self.word_embeddings.T)
            log_probabilities[seed, part] = -F.cross_entropy(logits, labels[part], reduction="none")
        return log_probabilities


class DecoderLosses(torch.autograd.Function):
    """The mean cross-entropy of each seed over its tokens with labels (not -100). Gradients are
    computed in the forward pass, chunk by chunk, so no more than 64 MiB of logits exist at any
    time; backward only scales them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "seeds n width_e"],
        embeddings: Float[Tensor, "vocabulary width_e"],
        bias: Float[Tensor, "seeds vocabulary"],
        labels: Int[Tensor, "seeds n"],
    ) -> Float[Tensor, " seeds"]:
        losses = hidden.new_zeros(len(hidden))
        hidden_gradient, bias_gradient = torch.zeros_like(hidden), torch.zeros_like(bias)
        counts = (labels != IGNORED).sum(1).clamp(min=1)
        for seed, part in _chunks(hidden, len(embeddings)):
            chosen = part.start + (labels[seed, part] != IGNORED).nonzero().squeeze(1)
            true = labels[seed, chosen]
            log_p = torch.addmm(bias[seed], hidden[seed, chosen], embeddings.T)
            log_p -= log_p.logsumexp(1, keepdim=True)
            losses[seed] -= log_p.gather(1, true[:, None]).sum() / counts[seed]
            # The gradient of the logits, p - onehot, in the place of the log-probabilities.
            gradient = log_p.exp_()
            gradient[torch.arange(len(true), device=true.device), true] -= 1
            gradient /= counts[seed]
            hidden_gradient[seed, chosen] = gradient @ embeddings
            bias_gradient[seed] += gradient.sum(0)
        ctx.save_for_backward(hidden_gradient, bias_gradient)
        return losses

    @staticmethod
    def backward(ctx: Any, *of_losses: Tensor) -> tuple[Tensor, None, Tensor, None]:
        of_hidden, of_bias = ctx.saved_tensors
        scales = of_losses[0][:, None]
        return of_hidden * scales[..., None], None, of_bias * scales, None


def _chunks(hidden: Tensor, vocabulary: int) -> Iterator[tuple[int, slice]]:
    """(seed, tokens) such that tokens × vocabulary stays within the bound."""
    size = max(1, _CHUNK_LOGITS // vocabulary)
    for seed in range(hidden.shape[0]):
        for start in range(0, hidden.shape[1], size):
            yield seed, slice(start, min(start + size, hidden.shape[1]))
