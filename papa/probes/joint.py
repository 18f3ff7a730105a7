"""A probe trained together with a parameter of the encoder's attention; the encoder itself stays
frozen.

Every minibatch is cut into parts (``papa.probes.minibatches``), whose gradients are added in their
order before the optimizer takes its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.corpora.batches import micro_batch
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.features import active_dropout, window_of
from papa.probes.minibatches import Part, part_tokens, parts_of, seed_of
from papa.probes.packed import live_features
from papa.probes.probes import Probe
from papa.probes.training import Losses, train
from papa.spec import ProbeSpec


class JointLearner:
    """What trains the ``parameter`` (θ of a mix, or constants), which inside ``block`` takes part
    in the encoder's attention, and the probe of one seed, if there is one.
    """

    def __init__(
        self,
        encoder: Encoder,
        parameter: nn.Parameter,
        probe: Probe | None,
        corpus: TokenisedCorpus,
        *,
        dropout: bool = False,
        block: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.groups: list[dict[str, Any]] = [{"params": [parameter]}]
        self.groups += [{"params": [*probe.parameters()]}] if probe else []
        self.encoder, self.split, self.parameter = encoder, corpus.split("train"), parameter
        self._probe, self._dropout, self._block = probe, dropout, block

    def train(
        self, spec: ProbeSpec, seed: int, rows: Int[np.ndarray, " rows"] | None = None, **how: Any
    ) -> None:
        """Train on these rows, or all, of the training split; a seed sees the minibatches that it
        sees of features. ``how`` is as for ``papa.probes.training.train``.
        """
        self._seed, split = seed, self.split
        self._rows = split.rows if rows is None else rows
        window = window_of(self.encoder, split, spec.batch_size)
        train(self, spec, [seed], rows=len(self._rows), window=window, **how)

    def window(self, rows: Int[np.ndarray, " rows"], epoch: int, index: int) -> Losses:
        if index == 0:
            self._steps = count()
        tokens = part_tokens(self.encoder.device.type != "cpu")

        def losses(batch: Int[Tensor, "1 batch"], _: int) -> Float[Tensor, " 1"]:
            place = self._seed, epoch, next(self._steps)
            chosen = self._rows[rows[batch[0].numpy()]]
            return self.losses(parts_of(self.split, chosen, tokens, place))

        return losses

    def losses(self, parts: Sequence[Part]) -> Float[Tensor, " 1"]:
        """The loss of a minibatch, whose gradients are added to ``.grad``."""
        total = torch.zeros(1, device=self.encoder.device)
        for part in parts:
            loss = self.loss(part)
            loss.backward()
            total += loss.detach()
        return total

    def loss(self, part: Part) -> Float[Tensor, ""]:
        """The part's share of the minibatch's loss."""
        assert self._probe is not None, "what has none has a loss of its own"
        batch = micro_batch(self.split, part.rows)
        dropped = (
            active_dropout(self.encoder, part.dropout_seed) if self._dropout else nullcontext()
        )
        with self._block(), dropped:
            token_states = self.encoder.token_states(batch)
        features = live_features(token_states, self.split, batch)
        # Not the seed of the encoder's dropout: both would draw the same numbers.
        dropout_seeds = [seed_of(part.dropout_seed, 1)] if self._dropout else None
        rows = torch.arange(len(part.rows))[None]
        return part.share * self._probe.losses(features, rows, dropout_seeds).sum()
