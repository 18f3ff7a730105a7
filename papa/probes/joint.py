"""Training a probe together with a parameter of the encoder's attention; the encoder itself stays frozen.

Every minibatch is cut into parts (``papa.probes.parts``). Whoever holds ``JointGradients`` finds the gradient of a part
for given values; the parts' gradients are added in their order, and one optimizer takes the step. So the result is
the same, bit for bit, whoever computes what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papa.corpora.compact import compact_batch
from papa.corpora.corpus import TokenizedCorpus
from papa.corpora.grouped import grouped_batches
from papa.corpora.sampling import sampled_rows
from papa.encoders.encoder import Encoder
from papa.errors import SpecError
from papa.probes.live import live_features
from papa.probes.parts import Part, part_tokens, parts_of
from papa.probes.probes import Probe
from papa.probes.sources import active_dropout
from papa.progress import Progress
from papa.spec import ProbeSpec


@dataclass(frozen=True)
class Tensors:
    """Values on their way to a part's gradient, or a gradient on its way back.

    Another process gets them as NumPy arrays, which Ray hands over through shared memory; tensors it would copy
    several times.
    """

    all: Sequence[Tensor]

    def __reduce__(self) -> tuple[Callable[..., Tensors], tuple[list[np.ndarray]]]:
        return _from_arrays, ([tensor.detach().cpu().numpy() for tensor in self.all],)


def _from_arrays(arrays: list[np.ndarray]) -> Tensors:
    # Copies: what lies in shared memory cannot be written to, and PyTorch knows no such tensor.
    return Tensors([torch.tensor(array) for array in arrays])


LOSS_SCALE = 2.0**12
"""What passes through an encoder in float16 is enlarged by: it holds nothing below 6e-8, and a gradient is small."""

PartGradient = tuple[float, Tensors]
"""A part's loss and its gradient."""
Each = Callable[[Tensors, Sequence[Part]], Sequence[PartGradient]]
"""Finds the gradient of every part at the values, in the parts' order."""


class JointGradients:
    """The gradient of a part of a minibatch, for the parameter and the probe at given values.

    Args:
        encoder: gradients pass through it and stay nowhere in it.
        parameter: θ of the mix, or constant matrices.
        probe: for one seed.
        corpus: its training split is trained on.
        dropout: whether the encoder's dropout is on.
        block: inside it the parameter takes part in the encoder's attention.

    Attributes:
        trained: the parameter, then the probe's.
    """

    def __init__(
        self,
        encoder: Encoder,
        parameter: nn.Parameter,
        probe: Probe,
        corpus: TokenizedCorpus,
        *,
        dropout: bool,
        block: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.trained = [parameter, *probe.parameters()]
        self._encoder, self._probe = encoder, probe
        self._split, self._pad_token_id = corpus.split("train"), corpus.pad_token_id
        self._dropout, self._block = dropout, block

    def gradient(self, values: Tensors, part: Part) -> PartGradient:
        """The part's share of the minibatch's loss, and of the loss's gradient, at ``values``."""
        with torch.no_grad():
            for own, given in zip(self.trained, values.all, strict=True):
                own.copy_(given)
        batch = compact_batch(self._split, part.rows, self._pad_token_id)
        dropped = active_dropout(self._encoder, part.dropout_seed) if self._dropout else nullcontext()
        with self._block(), dropped:
            token_states = self._encoder.token_states(batch)
        features = live_features(token_states, self._split, batch)
        loss = part.share * self._probe.losses(features, torch.arange(len(part.rows))[None]).sum()
        scale = LOSS_SCALE if self._encoder.precision == "float16" else 1.0
        gradient = torch.autograd.grad(scale * loss, self.trained)
        return loss.item(), Tensors([tensor.contiguous() if scale == 1 else tensor / scale for tensor in gradient])

    def each(self, values: Tensors, parts: Sequence[Part]) -> list[PartGradient]:
        """Every part's gradient, one after the other."""
        return [self.gradient(values, part) for part in parts]


def train_jointly(
    each: Each,
    trained: Sequence[nn.Parameter],
    corpus: TokenizedCorpus,
    *,
    spec: ProbeSpec,
    rows: int | None,
    epochs: int,
    rate: float,
    seed: int,
    on_gpu: bool,
    progress: Progress,
) -> None:
    """Train on the training split with AdamW at a constant rate.

    Args:
        each: finds the gradients of a minibatch's parts.
        trained: as in ``JointGradients``; changed in place.
        corpus: its training split is trained on.
        spec: rows in a minibatch.
        rows: a sample of so many rows of the split, drawn by ``seed``; None takes all.
        epochs: passes over the rows.
        rate: learning rate.
        seed: of the sample and the order of the rows, and of dropout.
        on_gpu: where the gradients are found; minibatches are cut into larger parts there.
        progress: told (rows done, rows) over all epochs.

    Raises:
        SpecError: the loss is no longer a number.
    """
    split = corpus.split("train")
    numbers = sampled_rows(len(split), rows, seed)
    optimizer = torch.optim.AdamW(trained, lr=rate, fused=True)
    tokens, total, done = part_tokens(on_gpu), epochs * len(numbers), 0
    for epoch in range(epochs):
        for step, members in enumerate(grouped_batches(split, numbers, spec.batch_size, (seed, epoch))):
            parts = parts_of(split, members, tokens, (seed, epoch, step))
            found = each(Tensors(trained), parts)
            loss = sum(part_loss for part_loss, _ in found)
            if not np.isfinite(loss):
                raise SpecError(f"learning_rate: the loss is {loss} in epoch {epoch + 1}: lower the rate, now {rate:g}")
            _put_sum(trained, [gradient for _, gradient in found])
            optimizer.step()
            done += len(members)
            progress(done, total)


def _put_sum(trained: Sequence[nn.Parameter], gradients: Sequence[Tensors]) -> None:
    """Give every parameter the sum of its gradients, added in their order."""
    for place, parameter in enumerate(trained):
        found = [gradient.all[place].to(parameter.device) for gradient in gradients]
        parameter.grad = reduce(torch.add, found) if found else None
