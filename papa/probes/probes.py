"""The probes (paper, Section 3.3, Section 5.5 and App. B), many seeds side by side.

Every parameter has a leading axis of seeds, which never mix: losses are summed.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from papa.probes.packed_features import PackedFeatures
from papa.text.layout import offsets_of, positions_in_rows
from papa.text.tokens import IGNORED

Inputs = Float[Tensor, "seeds n inputs"]
Labels = Shaped[Tensor, "seeds n"]
RowsOfSeeds = Int[Tensor, "seeds batch"]


class Probe(nn.Module):
    """What training and scoring need of a probe, which multiplies its inputs in ``dtype``."""

    def __init__(self, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.seeds = tuple(seeds)
        self.dtype = dtype

    def losses(
        self,
        features: PackedFeatures,
        rows: RowsOfSeeds,
        dropout_seeds: Sequence[int] | None = None,
    ) -> Float[Tensor, " seeds"]:
        """Return the mean loss of each seed on its rows; without ``dropout_seeds`` no dropout is
        drawn.
        """
        return self.loss(*self.inputs(features, rows), dropout_seeds)

    def predictions(
        self, features: PackedFeatures, rows: Int[Tensor, " n"]
    ) -> Shaped[Tensor, "seeds predictions"]:
        """Return the predictions of every seed for the rows: one a row, or one a token, in
        order.
        """
        return self.predicted(*self.inputs(features, rows.expand(len(self.seeds), -1)))

    def inputs(self, features: PackedFeatures, rows: RowsOfSeeds) -> tuple[Inputs, Labels]:
        """Return the hidden states, concatenated, of every labelled token of each seed's rows, and
        the labels. Seeds with fewer tokens than others are padded with a repeated token whose label
        is -100.
        """
        seeds, batch = rows.shape
        tokens, position = features.tokens_of(rows.flatten())
        seed = position // batch
        counts = torch.bincount(seed, minlength=seeds)
        index = torch.zeros(seeds, int(counts.max()), dtype=torch.int64)
        index[seed, torch.from_numpy(positions_in_rows(counts.numpy()))] = tokens
        device = features.values.device
        is_padding = (torch.arange(index.shape[1]) >= counts[:, None]).to(device)
        index = index.to(device)
        values = features.values[index].flatten(2).to(self.dtype)
        return values, features.labels[index].masked_fill(is_padding, IGNORED)

    def loss(
        self, inputs: Inputs, labels: Labels, dropout_seeds: Sequence[int] | None
    ) -> Float[Tensor, " seeds"]:
        raise NotImplementedError

    def predicted(self, inputs: Inputs, labels: Labels) -> Shaped[Tensor, "all n"]:
        raise NotImplementedError


class SeedLinear(nn.Module):
    """One linear map for each seed: weights N(0, 0.02), biases 0, trained in float32; inputs,
    weights and gradients are rounded to ``dtype`` before they are multiplied.
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        inputs: int,
        outputs: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        drawn = [
            torch.empty(inputs, outputs).normal_(std=0.02, generator=generator)
            for generator in generators
        ]
        self.weight = nn.Parameter(torch.stack(drawn))
        self.bias = nn.Parameter(torch.zeros(len(drawn), outputs))

    def forward(self, x: Float[Tensor, "seeds n inputs"]) -> Float[Tensor, "seeds n outputs"]:
        if self.dtype == torch.float32:
            return torch.baddbmm(self.bias[:, None], x, self.weight)
        return torch.bmm(x.to(self.dtype), self.weight.to(self.dtype)) + self.bias[:, None]


def generators_of(seeds: Sequence[int]) -> list[torch.Generator]:
    """Return a generator for each seed: its numbers do not depend on the other seeds."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def dropped(
    values: Float[Tensor, "seeds n width"], share: float, seeds: Sequence[int]
) -> Float[Tensor, "seeds n width"]:
    """Set a share of the values to 0 and divide the others by 1 - share, by each seed's numbers."""
    drawn = torch.stack(
        [torch.rand(values.shape[1:], generator=generator) for generator in generators_of(seeds)]
    )
    return values * (drawn >= share).to(values) / (1 - share)


class TokenProbe(Probe):
    """Predicts a label for each labelled token.

    A linear map with products in ``dtype`` takes the token's hidden states, concatenated, to width
    d. Tanh and ``dropout`` follow. A second linear map gives the logits of the labels, or with
    ``regression`` one number, which is trained by squared error.

    Args:
        state_count: The number of hidden states of a token: L+1, embeddings included.
        width: d, the width of a hidden state.
        label_count: The number of outputs; 1 with ``regression``.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        state_count: int,
        width: int,
        label_count: int,
        dtype: torch.dtype = torch.float32,
        regression: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(seeds, dtype)
        self.regression = regression
        self.dropout = dropout
        generators = generators_of(seeds)
        self.dense = SeedLinear(generators, state_count * width, width, dtype)
        self.classifier = SeedLinear(generators, width, label_count)

    def forward(
        self, inputs: Inputs, dropout_seeds: Sequence[int] | None = None
    ) -> Float[Tensor, "seeds n labels"]:
        hidden = torch.tanh(self.dense(inputs))
        if dropout_seeds is not None and self.dropout > 0:
            hidden = dropped(hidden, self.dropout, dropout_seeds)
        return self.classifier(hidden)

    def loss(
        self, inputs: Inputs, labels: Labels, dropout_seeds: Sequence[int] | None
    ) -> Float[Tensor, " seeds"]:
        """Return each seed's mean loss over the labels of its rows."""
        outputs = self(inputs, dropout_seeds)
        if self.regression:
            return (outputs.squeeze(-1) - labels).square().mean(1)
        losses = F.cross_entropy(
            outputs.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(labels)
        return losses.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)

    def predicted(self, inputs: Inputs, labels: Labels) -> Tensor:
        outputs = self(inputs)
        return outputs.squeeze(-1) if self.regression else outputs.argmax(-1)


class SequenceProbe(TokenProbe):
    """Predicts a label for a whole input (paper, Section 3.3).

    Each of the L+1 hidden states is summed over the slots that hold a token, with learned weights
    [L+1, S] that start at 1/S. The sums then pass the maps of ``TokenProbe``, as a token's states
    do.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        state_count: int,
        width: int,
        slots: int,
        label_count: int,
        regression: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            seeds,
            state_count=state_count,
            width=width,
            label_count=label_count,
            regression=regression,
            dropout=dropout,
        )
        self.slot_weights = nn.Parameter(torch.full((len(seeds), state_count, slots), 1 / slots))

    def inputs(self, features: PackedFeatures, rows: RowsOfSeeds) -> tuple[Inputs, Labels]:
        """Return the weighted sums over slots of each hidden state, and the labels."""
        seeds, state_count, slots = self.slot_weights.shape
        batch = rows.shape[1]
        values = features.values
        width = values.shape[-1]
        device = values.device
        # A bag for each (seed, row, state): its tokens are rows of the table [tokens · (L+1), d].
        tokens, bags = features.tokens_of(rows.flatten().repeat_interleave(state_count))
        tokens = tokens.to(device)
        bags = bags.to(device)
        state = bags % state_count
        seed = bags // (batch * state_count)
        # The flat index of each token's weight in [seeds, L+1, S].
        weight_index = (seed * state_count + state) * slots + features.slot_ids[tokens]
        weights = self.slot_weights.flatten().index_select(0, weight_index)
        if values.dtype == self.slot_weights.dtype:
            table = values.flatten(0, 1)
            entries = tokens * state_count + state
        else:
            # Half-precision storage: sums are taken in float32.
            table = values[tokens, state].to(weights.dtype)
            entries = torch.arange(len(tokens), device=device)
        sizes = features.lengths[rows.flatten()].repeat_interleave(state_count)
        starts = torch.from_numpy(offsets_of(sizes.numpy())[:-1]).to(device)
        # A bag of embeddings is a weighted sum over tokens without a copy of them.
        sums = F.embedding_bag(entries, table, starts, mode="sum", per_sample_weights=weights)
        return sums.view(seeds, batch, state_count * width), features.labels[rows.to(device)]


class MaskedProbe(Probe):
    """Predicts the word under each masked token (paper, Section 5.5 and App. B).

    A linear map takes the token's L+1 hidden states, concatenated, to width d, and GELU follows. A
    word's logit is the product with the encoder's word embedding, which is frozen, plus a learned
    bias. Where word embeddings have another width e (ALBERT, small ELECTRA), one more linear map
    takes d to e before that product.
    """

    word_embeddings: Tensor

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        state_count: int,
        width: int,
        word_embeddings: Float[Tensor, "vocabulary width_e"],
    ) -> None:
        super().__init__(seeds)
        generators = generators_of(seeds)
        vocabulary, narrow = word_embeddings.shape
        self.dense = SeedLinear(generators, state_count * width, width)
        self.narrow = SeedLinear(generators, width, narrow) if narrow != width else nn.Identity()
        self.bias = nn.Parameter(torch.zeros(len(seeds), vocabulary))
        frozen = word_embeddings.detach().to(torch.float32)
        self.register_buffer("word_embeddings", frozen, persistent=False)

    def forward(self, tokens: Inputs) -> Float[Tensor, "seeds n width_e"]:
        return self.narrow(F.gelu(self.dense(tokens)))

    def loss(self, inputs: Inputs, labels: Labels, dropout_seeds: Sequence[int] | None) -> Tensor:
        return self._losses(inputs, labels).sum(1) / (labels != IGNORED).sum(1).clamp(min=1)

    def predicted(self, inputs: Inputs, labels: Labels) -> Tensor:
        """Return the natural log-probability of each masked token's true word."""
        return -self._losses(inputs, labels)

    def _losses(self, inputs: Inputs, labels: Labels) -> Float[Tensor, "seeds n"]:
        losses: list[Tensor] = []
        # One seed at a time: logits are [n, vocabulary].
        for hidden, bias, true in zip(self(inputs), self.bias, labels, strict=True):
            logits = torch.addmm(bias, hidden, self.word_embeddings.T)
            losses.append(F.cross_entropy(logits, true, ignore_index=IGNORED, reduction="none"))
        return torch.stack(losses)
