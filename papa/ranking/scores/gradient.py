"""Gradient: how much the loss of a frozen probe changes as a head is turned down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papa.attention.substitutes import Mixed, Zeros, rules_of
from papa.corpora.batches import micro_batches
from papa.encoders.encoder import numbers_of
from papa.probes.features import live_features
from papa.ranking.scores.asked import Asked, Scored


def gradient(asked: Asked) -> Scored:
    """E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the loss of
    the probe, or of the model's own head, on one input, the mean over its labels.

    It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx what the head puts out. The authors'
    code takes the absolute value at each token and adds those up, and divides by the norm of each
    layer; neither is done here.
    """
    found, done = list[np.ndarray](), 0
    for summed, gates, labels in (_own if asked.task.head == "own" else _of_probe)(asked):
        (of_gates,) = torch.autograd.grad(summed, gates)
        # An input without a label of its tokens has no loss.
        by_label = of_gates.abs().cpu() / labels.cpu().to(of_gates.dtype).clamp(min=1)[:, None]
        found.append(by_label.double().numpy())
        done += by_label.shape[1]
        asked.progress(done, len(asked.rows))
    of_inputs = np.concatenate(found, axis=1)
    inputs = of_inputs.shape[1]
    error = of_inputs.std(axis=1, ddof=1) / np.sqrt(inputs) if inputs > 1 else None
    return Scored(of_inputs.mean(axis=1), error, 2, inputs)


OfBatches = Iterator[tuple[Float[Tensor, ""], Float[Tensor, "layers batch heads"], Tensor]]
"""The sum of a batch's losses, the gates of each of its inputs, and how many labels that has."""


def _own(asked: Asked) -> OfBatches:
    loss, encoder = asked.own_loss(Zeros()), asked.encoder
    for rows in loss.batches(asked.rows):
        size = encoder.layers, len(rows), encoder.heads
        gates = torch.ones(size, device=loss.model.device, requires_grad=True)
        summed, lengths = loss(rows, gates)
        yield summed, gates, lengths


def _of_probe(asked: Asked) -> OfBatches:
    encoder, split, probe = asked.encoder, asked.corpus.split("train"), asked.frozen_probe()
    batches = micro_batches(split, asked.rows, encoder.tokens_per_batch(None))
    every = dict.fromkeys(range(encoder.layers), range(encoder.heads))
    for number, batch in enumerate(batches, 1):
        size = encoder.layers, len(batch.rows), encoder.heads
        gates = torch.ones(size, device=encoder.device, requires_grad=True)
        # Each input has gates of its own.
        rules = rules_of(Mixed(Zeros(), gates), every, encoder.layers)
        with encoder.ruled(rules), numbers_of(f"batch {number} of the {split.name} split"):
            states = encoder.token_states(batch)
        features = live_features(states, split, batch)
        summed = probe.losses(features, torch.arange(len(features))[None]) * len(features.labels)
        yield summed.sum(), gates, features.label_counts
