"""Training a probe together with a parameter of the encoder's attention; the encoder itself stays
frozen.

Every minibatch is cut into parts (``papa.probes.minibatches``), whose gradients are added in their
order before the optimizer takes its step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from papa.corpora.batches import micro_batch
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.encoders.finite import numbers_of
from papa.errors import SpecError
from papa.probes.features import active_dropout
from papa.probes.minibatches import Part, minibatches, part_tokens, parts_of, seed_of, window_rows
from papa.probes.packed import count_tokens, live_features
from papa.probes.probes import Probe
from papa.probes.training import adamw, clip_gradients
from papa.progress import OnEpoch, Progress, ignore_epoch
from papa.spec import ProbeSpec

PartGradient = tuple[float, Sequence[Tensor]]
"""A part's loss and the gradient of every trained tensor."""
PartGradients = Callable[[Sequence[Part]], Sequence[PartGradient]]
"""Computes the gradient of every part, in the parts' order."""


class JointGradients:
    """The gradient of a part of a minibatch for what is ``trained``: the parameter (θ of a mix, or
    constants), which inside ``block`` takes part in the encoder's attention, then the probe's.
    """

    def __init__(
        self,
        encoder: Encoder,
        parameter: nn.Parameter,
        probe: Probe,
        corpus: TokenisedCorpus,
        *,
        dropout: bool,
        block: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.trained = [parameter, *probe.parameters()]
        self._encoder, self._probe = encoder, probe
        self._split = corpus.split("train")
        self._dropout, self._block = dropout, block

    def gradient(self, part: Part) -> PartGradient:
        """The part's share of the minibatch's loss, and of its gradient."""
        batch = micro_batch(self._split, part.rows)
        dropped = (
            active_dropout(self._encoder, part.dropout_seed) if self._dropout else nullcontext()
        )
        with self._block(), dropped:
            token_states = self._encoder.token_states(batch)
        features = live_features(token_states, self._split, batch)
        # Not the seed of the encoder's dropout: both would draw the same numbers.
        dropout_seeds = [seed_of(part.dropout_seed, 1)] if self._dropout else None
        loss = (
            part.share
            * self._probe.losses(features, torch.arange(len(part.rows))[None], dropout_seeds).sum()
        )
        return loss.item(), torch.autograd.grad(loss, self.trained)

    def of_parts(self, parts: Sequence[Part]) -> list[PartGradient]:
        """Every part's gradient, one after the other."""
        return [self.gradient(part) for part in parts]


def train_jointly(
    encoder: Encoder,
    of_parts: PartGradients,
    trained: Sequence[nn.Parameter],
    corpus: TokenisedCorpus,
    *,
    spec: ProbeSpec,
    rows: Int[np.ndarray, " n"],
    epochs: int,
    rate: float,
    parameter_rate: float | None = None,
    seed: int,
    progress: Progress,
    on_epoch: OnEpoch = ignore_epoch,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train on rows of the training split with the optimiser of ``papa.probes.training``.

    On the whole split a seed sees the minibatches that ``train_probes`` shows it.

    Args:
        trained: as in ``JointGradients``; changed in place.
        epochs: passes over the rows, at most.
        parameter_rate: that of the encoder's parameter, where it is another.
        stop: asked after every epoch whether to leave out the others.
    """
    split = corpus.split("train")
    token_values = (encoder.layers + 1) * encoder.width
    window = window_rows(len(split), count_tokens(split), token_values, spec.batch_size)
    parameter, *probe = trained
    own = {"params": [parameter], "lr": parameter_rate or rate}
    groups: list[dict[str, Any]] = [own, {"params": probe}]
    optimizer = adamw(groups, spec, rate)
    tokens = part_tokens(encoder.device.type != "cpu")
    total, done = epochs * len(rows), 0
    for epoch in range(epochs):
        losses = list[float]()
        for step, positions in enumerate(
            minibatches(len(rows), epoch, seed, window, spec.batch_size)
        ):
            parts = parts_of(split, rows[positions], tokens, (seed, epoch, step))
            where = f"minibatch {step + 1} of epoch {epoch + 1}"
            with numbers_of(where):
                loss, norm = joint_step(
                    of_parts, trained, optimizer, parts, max_grad_norm=spec.max_grad_norm
                )
            if not np.isfinite(loss + norm):
                raise SpecError(
                    f"learning_rate: the loss is {loss}, and the norm of its gradient {norm}, in "
                    f"{where}: lower the rate, now {rate:g}"
                )
            losses.append(loss)
            done += len(positions)
            progress(done, total)
        on_epoch(epoch + 1, {seed: sum(losses) / len(losses)})
        if stop():
            # Epochs that are left out count as done.
            progress(total, total)
            break


def joint_step(
    of_parts: PartGradients,
    trained: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    parts: Sequence[Part],
    *,
    max_grad_norm: float,
) -> tuple[float, float]:
    """Take one step on a minibatch of parts, whose gradients are clipped together; gives the loss,
    and the norm of its gradient before it was clipped.
    """
    of_minibatch = of_parts(parts)
    for index, parameter in enumerate(trained):
        gradients = [gradient[index].contiguous() for _, gradient in of_minibatch]
        # A minibatch without any label has a gradient of 0, as in ``train_step``.
        parameter.grad = reduce(torch.add, gradients) if gradients else torch.zeros_like(parameter)
    norm = clip_gradients(
        [parameter.grad[None] for parameter in trained if parameter.grad is not None], max_grad_norm
    )
    optimizer.step()
    return sum(loss for loss, _ in of_minibatch), norm.item()
