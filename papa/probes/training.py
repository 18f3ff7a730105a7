"""Training probes for several seeds at once, and scoring them (paper, Section 3.3 and App. B).

The optimiser is set as the authors' Trainer sets it (docs/fidelity.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.errors import SpecError
from papa.probes.features import FeatureSource
from papa.probes.minibatches import epoch_windows, seed_of, window_order, window_rows
from papa.probes.packed import PackedFeatures, count_tokens
from papa.probes.probes import Probe
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.own import Score
from papa.spec import ProbeSpec

_SCORED_ROWS = 32
"""Rows scored at a time."""


@dataclass(frozen=True)
class SeedScore:
    """The score of a cell for one seed.

    Attributes:
        seed: the probe's start and order of rows.
        score: on the validation split, after the last epoch.
        examples: what each validation row adds to the score (``papa.scores.metrics``), in the
            order of the split.
        seconds: the seed's share of the time that training and scoring took.
    """

    seed: int
    score: float
    examples: Float[np.ndarray, "rows k"]
    seconds: float


def train_probes(
    probe: Probe,
    train: FeatureSource,
    validation: FeatureSource,
    *,
    seeds: Sequence[int],
    spec: ProbeSpec,
    score: Score,
    token_values: int,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[SeedScore]:
    """Train a probe for each seed and score its last epoch.

    Seeds share features and steps, never gradients: the losses are summed, and each seed has
    parameters of its own. ``token_values``, (L+1)·d, bound the rows of a window.
    """
    started = time.perf_counter()
    validation_rows = len(validation.split)
    total = spec.epochs * len(train.split) + validation_rows
    fit_probes(
        probe,
        train,
        seeds=seeds,
        spec=spec,
        token_values=token_values,
        progress=lambda done, _: progress(done, total),
        on_epoch=on_epoch,
    )
    window = window_rows(
        validation_rows, count_tokens(validation.split), token_values, batch_size=1
    )
    predictions, labels, lengths = _predict(probe, validation, window)
    scores = [score(predicted, labels, lengths) for predicted in predictions]
    progress(total, total)
    seconds = (time.perf_counter() - started) / len(seeds)
    return [
        SeedScore(seed=seed, score=result.score, examples=result.examples, seconds=seconds)
        for seed, result in zip(seeds, scores, strict=True)
    ]


def fit_probes(
    probe: Probe,
    train: FeatureSource,
    *,
    seeds: Sequence[int],
    spec: ProbeSpec,
    token_values: int,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Train a probe for each seed, for all epochs."""
    rows = len(train.split)
    total = spec.epochs * rows
    window = window_rows(rows, count_tokens(train.split), token_values, spec.batch_size)
    optimizer = adamw(probe.parameters(), spec, spec.learning_rate)
    done = 0
    for epoch in range(spec.epochs):
        summed, steps = np.zeros(len(seeds)), 0
        for index, members in enumerate(epoch_windows(rows, epoch, window)):
            # One seed for all probes' dropout: they share the pass.
            features, row_numbers = train.window(members, dropout_seed=epoch * 2**20 + index)
            orders = np.stack(
                [window_order(np.arange(len(members)), epoch, seed, index) for seed in seeds]
            )
            losses = _train_window(
                probe,
                optimizer,
                features,
                torch.from_numpy(row_numbers[orders]),
                spec,
                [seed_of(seed, epoch, index) for seed in seeds],
            )
            if not bool(losses.isfinite().all()):
                step, number = (~losses.isfinite()).nonzero()[0].tolist()
                minibatch = index * (window // spec.batch_size) + step + 1
                raise SpecError(
                    f"probe.learning_rate: the loss of seed {seeds[number]} is "
                    f"{losses[step, number].item()}, or the norm of its gradient, in minibatch "
                    f"{minibatch} of epoch {epoch + 1}: lower the rate, now {spec.learning_rate:g}"
                )
            summed += losses.sum(0).tolist()
            steps += len(losses)
            done += len(members)
            progress(done, total)
            del features
        on_epoch(epoch + 1, dict(zip(seeds, (summed / steps).tolist(), strict=True)))


def _train_window(
    probe: Probe,
    optimizer: torch.optim.Optimizer,
    features: PackedFeatures,
    orders: Int[Tensor, "seeds rows"],
    spec: ProbeSpec,
    window_seeds: Sequence[int],
) -> Float[Tensor, "steps seeds"]:
    """Take a step per batch of rows; return their losses, not finite where a gradient was not."""
    found = []
    for step, rows in enumerate(orders.split(spec.batch_size, dim=1)):
        dropout_seeds = [seed_of(own, step) for own in window_seeds]
        losses, norms = train_step(
            probe,
            optimizer,
            features,
            rows,
            max_grad_norm=spec.max_grad_norm,
            dropout_seeds=dropout_seeds,
        )
        found.append(torch.where(norms.isfinite(), losses, norms))
    return torch.stack(found)


def train_step(
    probe: Probe,
    optimizer: torch.optim.Optimizer,
    features: PackedFeatures,
    rows: Int[Tensor, "seeds batch"],
    *,
    max_grad_norm: float,
    dropout_seeds: Sequence[int] | None = None,
) -> tuple[Float[Tensor, " seeds"], Float[Tensor, " seeds"]]:
    """Take one step of every seed on a minibatch of its own, its rows numbered on the CPU; gives
    each seed's loss, and the norm of its gradient before it was clipped.
    """
    optimizer.zero_grad(set_to_none=True)
    losses = probe.losses(features, rows, dropout_seeds)
    losses.sum().backward()
    gradients = [parameter.grad for parameter in probe.parameters() if parameter.grad is not None]
    norms = clip_gradients(gradients, max_grad_norm)
    optimizer.step()
    return losses.detach(), norms


def _predict(
    probe: Probe, source: FeatureSource, window: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predictions [seeds, n], labels [n], and the labels each row has [rows]."""
    rows = np.arange(len(source.split))
    with torch.inference_mode():
        windows = [
            _predict_window(probe, source, rows[start : start + window])
            for start in range(0, len(rows), window)
        ]
    predictions, labels, lengths = zip(*windows, strict=True)
    return np.concatenate(predictions, axis=1), np.concatenate(labels), np.concatenate(lengths)


def _predict_window(
    probe: Probe, source: FeatureSource, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # A function of its own: the window's features are gone before the next one's are made.
    features, row_numbers = source.window(members)
    rows = torch.from_numpy(row_numbers)
    predictions = torch.cat(
        [probe.predictions(features, part) for part in rows.split(_SCORED_ROWS)], dim=1
    )
    labelled = features.tokens_of(rows)[0] if features.token_labels else rows
    labels = features.labels[labelled.to(features.device)]
    counts = features.label_counts[rows]
    return predictions.cpu().numpy(), labels.cpu().numpy(), counts.numpy()


_BETAS = (0.9, 0.999)
_NORM_EPSILON = 1e-6
"""Added to a norm before it divides, as ``torch.nn.utils.clip_grad_norm_`` does."""


def adamw(
    parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
    spec: ProbeSpec,
    rate: float,
) -> torch.optim.AdamW:
    """Make AdamW at a constant rate, with ε where transformers 4, the authors' library, has it.

    PyTorch divides by √(v / (1 - β₂ᵗ)) + ε, transformers 4 by (√v + ε) / √(1 - β₂ᵗ): the same with
    an ε that shrinks from step to step.
    """
    optimizer = torch.optim.AdamW(
        parameters, lr=rate, betas=_BETAS, weight_decay=spec.weight_decay, fused=True
    )
    steps = count(1)

    def set_epsilon(*_: Any) -> None:
        epsilon = spec.adam_epsilon / math.sqrt(1 - _BETAS[1] ** next(steps))
        for group in optimizer.param_groups:
            group["eps"] = epsilon

    optimizer.register_step_pre_hook(set_epsilon)
    return optimizer


def clip_gradients(
    gradients: Sequence[Float[Tensor, "seeds ..."]], limit: float
) -> Float[Tensor, " seeds"]:
    """Scale the gradients of each seed, along the first axis, in place, so that their common norm
    is at most ``limit``; 0 scales nothing. Returns each seed's norm before it was clipped.
    """
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    scales = (limit / (norms + _NORM_EPSILON)).clamp(max=1)
    # A GPU would have to be waited for to learn whether there is anything to scale.
    if limit and (scales.device.type != "cpu" or bool((scales < 1).any())):
        for gradient in gradients:
            gradient.mul_(scales.view(-1, *[1] * (gradient.ndim - 1)))
    return norms
