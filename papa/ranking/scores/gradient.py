"""Gradient: how much the loss of a frozen probe changes as a head is turned down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papa.attention.substitutes import Mixed, Zeros, rules_of
from papa.corpora.batches import micro_batches
from papa.encoders.finite import numbers_of
from papa.probes.packed import live_features
from papa.ranking.own import in_batches
from papa.ranking.scores.asked import Asked, Scored, frozen_probe, own_loss


def gradient(asked: Asked) -> Scored:
    """E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the loss of
    the probe on one input, the mean over its labels.

    It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx what the head puts out. The authors'
    code takes the absolute value at each token and adds those up, and divides by the norm of each
    layer; neither is done here.
    """
    of_rows = _own_gradients(asked) if asked.task.head == "own" else _probes_gradients(asked)
    done, found = 0, list[np.ndarray]()
    for gradients in of_rows:
        found.append(gradients.double().cpu().numpy())
        done += gradients.shape[1]
        asked.progress(done, len(asked.rows))
    of_inputs = np.concatenate(found, axis=1)
    inputs = of_inputs.shape[1]
    error = of_inputs.std(axis=1, ddof=1) / np.sqrt(inputs) if inputs > 1 else None
    return Scored(of_inputs.mean(axis=1), error, 2, inputs)


def _own_gradients(asked: Asked) -> Iterator[Float[Tensor, "layers batch heads"]]:
    """By the loss of what the model's own head answers."""
    loss, encoder = own_loss(asked, Zeros()), asked.encoder
    for rows in in_batches(loss, asked.rows):
        size = encoder.layers, len(rows), encoder.heads
        gates = torch.ones(size, device=loss.model.device, requires_grad=True)
        summed, lengths = loss(rows, gates)
        (of_gates,) = torch.autograd.grad(summed, gates)
        yield of_gates.abs() / lengths.to(of_gates).clamp(min=1)[None, :, None]


def _probes_gradients(asked: Asked) -> Iterator[Float[Tensor, "layers batch heads"]]:
    """By the loss of a frozen probe."""
    encoder, split, rows = asked.encoder, asked.corpus.split("train"), asked.rows
    probe = frozen_probe(asked)
    every = dict.fromkeys(range(encoder.layers), range(encoder.heads))
    for number, batch in enumerate(micro_batches(split, rows, encoder.tokens_per_batch(None)), 1):
        gates = torch.ones(
            encoder.layers, len(batch.rows), encoder.heads, device=encoder.device
        ).requires_grad_()
        # Each input has gates of its own.
        rules = rules_of(Mixed(Zeros(), gates), every, encoder.layers)
        with encoder.ruled(rules), numbers_of(f"batch {number} of the {split.name} split"):
            states = encoder.token_states(batch)
        features = live_features(states, split, batch)
        summed = probe.losses(features, torch.arange(len(features))[None]) * len(features.labels)
        (of_gates,) = torch.autograd.grad(summed.sum(), gates)
        # An input without a label of its tokens has no loss.
        yield of_gates.abs().cpu() / features.label_counts.clamp(min=1)[None, :, None]
