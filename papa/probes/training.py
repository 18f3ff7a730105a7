"""The one training loop, for several seeds at once (paper, Section 3.3 and App. B).

The optimiser is set as the authors' Trainer sets it (docs/fidelity.md). A permutation that all
seeds share cuts an epoch into windows of rows, inside which each seed has its own order: features
can be computed a window at a time and serve every seed, with the same batches stored or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.cores import free_threads
from papa.errors import SpecError
from papa.models.encoder import Encoder, numbers_of
from papa.probes.features import FeatureSource, active_dropout, live_features, window_of
from papa.probes.probes import Probe
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.spec import ProbeSpec
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedSplit

Rows = Int[np.ndarray, " rows"]
Summed = tuple[Float[Tensor, ""], Int[Tensor, " rows"]]
"""The sum of the losses of what rows are asked, and how much each is; gradients pass."""
Losses = Callable[[Int[Tensor, "seeds batch"], int], Float[Tensor, " seeds"]]
"""The loss of each seed on positions in a window, with their step there; adds to ``.grad``."""
Window = Callable[[Rows, int, int], Losses]
"""From the rows of a window, of what epoch and which of its windows, to what trains on them."""
Groups = list[dict[str, Any]]


def seed_of(*entropy: int) -> int:
    """A seed for a generator of PyTorch that follows from several numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def probe_window(probe: Probe, source: FeatureSource, seeds: Sequence[int]) -> Window:
    """For probes of several seeds, which share features and steps, and gradients never."""

    def window(rows: Rows, epoch: int, index: int) -> Losses:
        # One seed for all probes' dropout: they share the pass.
        features, places = source.window(rows, dropout_seed=epoch * 2**20 + index)
        own = [seed_of(one, epoch, index) for one in seeds]

        def losses(batch: Int[Tensor, "seeds batch"], step: int) -> Float[Tensor, " seeds"]:
            found = probe.losses(features, places[batch], [seed_of(one, step) for one in own])
            found.sum().backward()
            return found.detach()

        return losses

    return window


def part_tokens(device: torch.device) -> int:
    """About how many real tokens a part has at most."""
    return 256 if device.type == "cpu" else 4_096


class Part(NamedTuple):
    """Rows of a minibatch in one pass, their shares of its loss and tokens, and a dropout seed."""

    rows: np.ndarray
    share: float
    token_share: float
    dropout_seed: int


def parts_of(
    split: TokenisedSplit, minibatch: np.ndarray, tokens: int, seed: tuple[int, ...]
) -> list[Part]:
    """Cut a minibatch into parts of like length and at most ``tokens``, shortest first, an even
    number unless one is enough or rows are few; ``seed`` and a part's place seed its dropout.
    """
    index = split.index_of(minibatch)
    first, lengths = split.first_lengths[index], split.lengths[index]
    # What a mean loss is taken over: rows, or their labelled tokens.
    terms = split.probed_lengths[index] if split.label_per_token else np.ones_like(lengths)
    # As micro-batches are sorted: rows of like length share a part, so little of it is padding.
    order = np.lexsort((minibatch, lengths - first, first))
    ends = lengths[order].cumsum()
    count = -(-int(ends[-1]) // tokens)
    count = min(len(order), count + count % 2 if count > 1 else 1)
    # A row belongs to the part in which its middle lies.
    part = ((ends - lengths[order] / 2) * count // ends[-1]).astype(np.int64)
    pieces = [order[part == number] for number in range(count)]
    labelled = [piece for piece in pieces if terms[piece].any()]
    total = sum(int(lengths[piece].sum()) for piece in labelled)
    return [
        Part(
            minibatch[piece],
            int(terms[piece].sum()) / int(terms.sum()),
            int(lengths[piece].sum()) / total,
            seed_of(*seed, number),
        )
        for number, piece in enumerate(labelled)
    ]


PartLoss = Callable[[Part], Float[Tensor, ""]]
"""The share of a minibatch's loss that a part of it has; gradients pass."""
Learned = tuple[Groups, PartLoss]


def seen_alone(
    rows: Rows, losses: Callable[[Rows, int, int], Float[Tensor, " 1"]], steps: int
) -> Window:
    """For one seed: ``losses`` takes a minibatch's rows, epoch and number, of so many a window."""

    def window(members: Rows, epoch: int, index: int) -> Losses:
        first = index * steps
        return lambda batch, step: losses(rows[members[batch[0].numpy()]], epoch, first + step)

    return window


def train_parts(
    learned: Learned,
    encoder: Encoder,
    split: TokenisedSplit,
    spec: ProbeSpec,
    seed: int,
    rows: Rows | None = None,
    twin_loss: Callable[[], PartLoss] | None = None,
    **how: Any,
) -> None:
    """Train what takes part in a frozen encoder's attention, alone or with a probe of one seed.

    Args:
        learned: What is trained, and its loss.
        encoder: The encoder.
        split: The training text.
        spec: Epochs, batch size and the optimiser's settings.
        seed: The seed of the order of rows, and of dropout.
        rows: The rows that are trained on; None takes all.
        twin_loss: Returns the same loss on an encoder of its own, for another thread: parts of a
            minibatch then run side by side on cores that no worker uses.
        how: As for ``train``.
    """
    groups, loss = learned
    rows = split.rows if rows is None else rows
    tokens = part_tokens(encoder.device)
    window = window_of(encoder, split, spec.batch_size)
    parameters = [parameter for group in groups for parameter in group["params"]]
    losses_of_threads = [loss]

    def losses(minibatch: Rows, *place: int) -> Float[Tensor, " 1"]:
        parts = parts_of(split, minibatch, tokens, (seed, *place))
        threads = 1 if twin_loss is None else min(free_threads(), len(parts))
        while twin_loss is not None and len(losses_of_threads) < threads:
            losses_of_threads.append(twin_loss())
        return total_loss(losses_of_threads[: max(1, threads)], parts, parameters)

    learn = seen_alone(rows, losses, window // spec.batch_size)
    train(groups, learn, spec, [seed], rows=len(rows), window=window, **how)


def total_loss(
    losses: Sequence[PartLoss], parts: Sequence[Part], parameters: Sequence[nn.Parameter]
) -> Float[Tensor, " 1"]:
    """Return the loss of a minibatch, and set the gradients of parameters.

    Gradients of parts are added in the order of the parts, so they are the same, bit for bit, in
    any number of threads.

    Args:
        losses: The loss, on an encoder of its own for each thread.
        parts: The parts of the minibatch.
        parameters: What is trained.
    """

    def gradients_of(
        loss: PartLoss, part: Part
    ) -> tuple[Float[Tensor, ""], Sequence[Tensor | None]]:
        value = loss(part)
        return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    total = torch.zeros(1, device=parameters[0].device)
    with _map_in_threads(len(losses)) as compute:
        # As many parts at a time as there are threads: each encoder serves one of them.
        for start in range(0, len(parts), len(losses)):
            side_by_side = parts[start : start + len(losses)]
            for value, gradients in compute(gradients_of, losses, side_by_side):
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


@contextmanager
def _map_in_threads(count: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield ``map``, which calls its function in as many threads of one core each."""
    if count == 1:
        yield map
        return
    with ThreadPoolExecutor(count, initializer=partial(torch.set_num_threads, 1)) as executor:
        yield executor.map


def train_theta(
    theta: nn.Parameter,
    loss: Callable[[Any, Float[Tensor, "layers heads"]], Summed],
    parts: Callable[[Rows], Iterable[Any]],
    rows: Rows,
    spec: ProbeSpec,
    seed: int,
    window: int,
    **how: Any,
) -> None:
    """Train θ alone, by a loss of a batch and θ; ``parts`` are the batches of a mini-batch."""

    def losses(minibatch: Rows, *_: int) -> Float[Tensor, " 1"]:
        total, answered = 0.0, 0
        theta.grad = torch.zeros_like(theta)
        for batch in parts(minibatch):
            with torch.enable_grad():
                summed, lengths = loss(batch, theta)
            if count := int(lengths.sum()):
                theta.grad += torch.autograd.grad(summed, theta)[0]
                total, answered = total + summed.item(), answered + count
        theta.grad /= max(answered, 1)
        return torch.tensor([total / max(answered, 1)], device=theta.device)

    learn = seen_alone(rows, losses, window // spec.batch_size)
    train([{"params": [theta]}], learn, spec, [seed], rows=len(rows), window=window, **how)


def probe_loss(
    encoder: Encoder,
    probe: Probe,
    split: TokenisedSplit,
    dropout: bool,
    block: Callable[[Part], AbstractContextManager[Any]] = lambda part: nullcontext(),
) -> PartLoss:
    """The loss of one seed's probe on what the encoder computes inside a part's ``block``."""

    def loss(part: Part) -> Float[Tensor, ""]:
        batch = micro_batch(split, part.rows)
        dropped = active_dropout(encoder, part.dropout_seed) if dropout else nullcontext()
        with block(part), dropped:
            token_states = encoder.token_states(batch)
        features = live_features(token_states, split, batch)
        # Not the seed of the encoder's dropout: both would draw the same numbers.
        dropout_seeds = [seed_of(part.dropout_seed, 1)] if dropout else None
        rows = torch.arange(len(part.rows))[None]
        return part.share * probe.losses(features, rows, dropout_seeds).sum()

    return loss


def train(
    groups: Groups,
    learn: Window,
    spec: ProbeSpec,
    seeds: Sequence[int],
    *,
    rows: int,
    window: int,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Train for all epochs, by windows of rows that each seed sees in an order of its own."""
    optimizer, done, total = adamw(groups, spec), 0, spec.epochs * rows

    def where(epoch: int, index: int, step: int) -> str:
        return f"minibatch {index * (window // spec.batch_size) + step + 1} of epoch {epoch + 1}"

    for epoch in range(spec.epochs):
        summed, steps = np.zeros(len(seeds)), 0
        # Sequences of different lengths may hash alike where the longer one ends in zeros; the
        # first number distinguishes this from a seed's order.
        shared = np.random.default_rng((0, epoch, 0)).permutation(rows)
        for index, start in enumerate(range(0, rows, window)):
            # Ascending: features are read from the disk in one direction.
            members = np.sort(shared[start : start + window])
            losses = learn(members, epoch, index)
            drawn = (np.random.default_rng((1, epoch, index, seed)) for seed in seeds)
            orders = [own.permutation(len(members)) for own in drawn]
            batches = torch.from_numpy(np.stack(orders)).split(spec.batch_size, dim=1)
            found = list[Tensor]()
            for step, batch in enumerate(batches):
                with numbers_of(where(epoch, index, step)):
                    loss, norm = take_step(losses, batch, step, optimizer, spec.max_grad_norm)
                found.append(torch.where(norm.isfinite(), loss, norm))
                # A GPU would have to be waited for: there a window is taken to its end.
                if found[-1].device.type == "cpu" and not found[-1].isfinite().all():
                    break
                done += batch.shape[1]
                progress(done, total)
            taken = np.array([own.tolist() for own in found])
            for step, number in np.argwhere(~np.isfinite(taken)).tolist():
                raise SpecError(
                    f"learning_rate: the loss of seed {seeds[number]} is {taken[step, number]}, or "
                    f"the norm of its gradient, in {where(epoch, index, step)}: lower the rate, "
                    f"now {spec.learning_rate:g}"
                )
            summed += taken.sum(0)
            steps += len(taken)
            # A window's features are gone before the next one's are made.
            del losses
        on_epoch(epoch + 1, dict(zip(seeds, (summed / steps).tolist(), strict=True)))


def take_step(
    losses: Losses,
    batch: Int[Tensor, "seeds batch"],
    step: int,
    optimizer: torch.optim.Optimizer,
    max_grad_norm: float,
) -> tuple[Float[Tensor, " seeds"], Float[Tensor, " seeds"]]:
    """A step of every seed on its minibatch: each one's loss, and gradient norm before clipping."""
    optimizer.zero_grad(set_to_none=True)
    found = losses(batch, step)
    trained: dict[int | None, list[Tensor]] = {}
    for group in optimizer.param_groups:
        trained.setdefault(group.get("seed"), []).extend(group["params"])
    norms = list[Tensor]()
    for parameters in trained.values():
        gradients = list[Tensor]()
        for parameter in parameters:
            # Of a minibatch without any label.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            # Of each seed, along the first axis where several share their parameters.
            gradients.append(parameter.grad.view(len(found) // len(trained), -1))
        norms.append(torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0))
        scales = (max_grad_norm / (norms[-1] + _NORM_EPSILON)).clamp(max=1)
        # A GPU would have to be waited for to learn whether there is anything to scale.
        if max_grad_norm and (scales.device.type != "cpu" or bool((scales < 1).any())):
            for gradient in gradients:
                gradient.mul_(scales[:, None])
    optimizer.step()
    return found, torch.cat(norms)


_NORM_EPSILON = 1e-6
"""Added to a norm before it divides, as ``torch.nn.utils.clip_grad_norm_`` does."""


def adamw(groups: Groups, spec: ProbeSpec) -> torch.optim.AdamW:
    """AdamW at a constant rate, with ε where transformers 4, the authors' library, has it: that
    divides by (√v + ε) / √(1 - β₂ᵗ), PyTorch by √(v / (1 - β₂ᵗ)) + ε, so ε shrinks by step.
    """
    decay, steps = spec.weight_decay, count(1)
    optimizer = torch.optim.AdamW(groups, lr=spec.learning_rate, weight_decay=decay, fused=True)
    _, beta = optimizer.defaults["betas"]

    def set_epsilon(*_: Any) -> None:
        epsilon = spec.adam_epsilon / math.sqrt(1 - beta ** next(steps))
        for group in optimizer.param_groups:
            group["eps"] = epsilon

    optimizer.register_step_pre_hook(set_epsilon)
    return optimizer
