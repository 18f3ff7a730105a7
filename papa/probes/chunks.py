"""Minibatches in chunks: training what takes part in a frozen encoder's attention, whose passes are
not computed once. A chunk has rows of like length; chunks run side by side on unused cores.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.cores import free_threads, map_in_threads
from papa.models.encoder import Encoder
from papa.probes.features import active_dropout, window_rows
from papa.probes.packed_features import live_features
from papa.probes.probes import Probe
from papa.probes.training import Groups, Learner, Rows, seed_of, single_seed_window, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.spec import ProbeSpec
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedSplit


def chunk_tokens(device: torch.device) -> int:
    """Return about how many real tokens a chunk has at most."""
    return 256 if device.type == "cpu" else 4_096


class Chunk(NamedTuple):
    """Rows of a minibatch in one pass, their shares of its loss and tokens, and a dropout seed."""

    rows: np.ndarray
    share: float
    token_share: float
    dropout_seed: int


def chunks_of(
    split: TokenisedSplit, minibatch: np.ndarray, tokens: int, seed: tuple[int, ...]
) -> list[Chunk]:
    """Cut a minibatch into chunks of like length and at most ``tokens``, shortest first, an even
    number where there are more than ``tokens / 2``, so that two threads have equal work; ``seed``
    and a chunk's number seed its dropout.
    """
    index = split.index_of(minibatch)
    first = split.first_lengths[index]
    lengths = split.lengths[index]
    # What a mean loss is values over: rows, or their labelled tokens.
    terms = split.probed_lengths[index] if split.label_per_token else np.ones_like(lengths)
    # As micro-batches are sorted: rows of like length share a chunk, so little of it is padding.
    order = np.lexsort((minibatch, lengths - first, first))
    total = lengths[order].cumsum()
    count = -(-int(total[-1]) // tokens)
    if 2 * total[-1] > tokens:
        count += count % 2
    count = min(len(order), count)
    # A row belongs to the chunk in which its middle lies.
    chunk_numbers = ((total - lengths[order] / 2) * count // total[-1]).astype(np.int64)
    members = [order[chunk_numbers == number] for number in range(count)]
    labelled = [indices for indices in members if terms[indices].any()]
    labelled_tokens = sum(int(lengths[indices].sum()) for indices in labelled)
    return [
        Chunk(
            minibatch[indices],
            int(terms[indices].sum()) / int(terms.sum()),
            int(lengths[indices].sum()) / labelled_tokens,
            seed_of(*seed, number),
        )
        for number, indices in enumerate(labelled)
    ]


ChunkLoss = Callable[[Chunk], Float[Tensor, ""]]
"""The share of a minibatch's loss that a chunk of it has; gradients pass."""
LossOn = Callable[[Encoder], ChunkLoss]
"""Returns the loss of what is trained, on an encoder or a copy of it."""


def train_in_chunks(
    groups: Groups,
    loss_on: LossOn,
    encoder: Encoder,
    split: TokenisedSplit,
    spec: ProbeSpec,
    seed: int,
    rows: Rows | None = None,
    *,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Train what takes part in a frozen encoder's attention, alone or with a probe of one seed,
    which is that of the order of rows, and of dropout.

    Chunks of a minibatch run side by side on cores that no worker uses, each on a copy of the
    encoder that shares its weights, where that computes the same.
    """
    rows = split.rows if rows is None else rows
    tokens = chunk_tokens(encoder.device)
    rows_per_window = window_rows(encoder, split, spec.batch_size)
    parameters = [parameter for group in groups for parameter in group["params"]]
    losses_of_threads = [loss_on(encoder)]
    can_share = encoder.can_have_twins and not spec.encoder_dropout

    def losses(minibatch: Rows, epoch: int, number: int) -> Float[Tensor, " 1"]:
        chunks = chunks_of(split, minibatch, tokens, (seed, epoch, number))
        threads = max(1, min(free_threads(), len(chunks))) if can_share else 1
        while len(losses_of_threads) < threads:
            losses_of_threads.append(loss_on(encoder.twin()))
        return accumulate_gradients(losses_of_threads[:threads], chunks, parameters)

    train(
        [Learner(groups, [seed])],
        single_seed_window(rows, losses, rows_per_window // spec.batch_size),
        spec,
        rows=len(rows),
        rows_per_window=rows_per_window,
        progress=progress,
        on_epoch=on_epoch,
    )


def accumulate_gradients(
    losses: Sequence[ChunkLoss], chunks: Sequence[Chunk], parameters: Sequence[nn.Parameter]
) -> Float[Tensor, " 1"]:
    """Add the gradients of a minibatch to those of parameters, and return its loss; ``losses`` are
    the loss, on an encoder of its own for each thread.

    Gradients are added in the order of the chunks, so they are the same, bit for bit, in any number
    of threads.
    """

    def gradients_of(
        loss: ChunkLoss, chunk: Chunk
    ) -> tuple[Float[Tensor, ""], Sequence[Tensor | None]]:
        value = loss(chunk)
        return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    total = torch.zeros(1, device=parameters[0].device)
    # As many chunks at a time as there are threads: each encoder serves one of them.
    for start in range(0, len(chunks), len(losses)):
        side_by_side = chunks[start : start + len(losses)]
        for value, gradients in map_in_threads(gradients_of, losses, side_by_side):
            total += value
            _add_gradients(parameters, gradients)
    return total


def _add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is None:
            # A copy: gradients may share memory, and they are scaled in place.
            parameter.grad = gradient.clone(memory_format=torch.contiguous_format)
        else:
            parameter.grad += gradient


def probe_loss(
    encoder: Encoder,
    probe: Probe,
    split: TokenisedSplit,
    dropout: bool,
    block: Callable[[Chunk], AbstractContextManager[object]] = lambda chunk: nullcontext(),
) -> ChunkLoss:
    """Return the loss of one seed's probe on what the encoder computes inside a chunk's
    ``block``.
    """

    def loss(chunk: Chunk) -> Float[Tensor, ""]:
        batch = micro_batch(split, chunk.rows)
        dropped = active_dropout(encoder, chunk.dropout_seed) if dropout else nullcontext()
        with block(chunk), dropped:
            token_states = encoder.token_states(batch)
        features = live_features(token_states, split, batch)
        # Not the seed of the encoder's dropout: both would draw the same numbers.
        dropout_seeds = [seed_of(chunk.dropout_seed, 1)] if dropout else None
        rows = torch.arange(len(chunk.rows))[None]
        return chunk.share * probe.losses(features, rows, dropout_seeds).sum()

    return loss
