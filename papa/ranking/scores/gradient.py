"""Gradient: how much the loss of a frozen probe changes as a head is turned down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papa.corpora.batches import MicroBatch, micro_batches
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.finite import numbers_of
from papa.probes.packed import live_features
from papa.ranking.scores.asked import Asked, Scored
from papa.ranking.scores.frozen import frozen_probe


@dataclass
class Gated:
    """The rule of one layer whose heads put out g·A·V; g is of each input."""

    gates: Float[Tensor, "batch heads"]
    dependent_heads: None = None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        return own.product(value) * self.gates[:, :, None, None]


def score(asked: Asked) -> Scored:
    """E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the loss of
    the probe on one input, the mean over its labels.

    It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx what the head puts out. The authors'
    code takes the absolute value at each token and adds those up, and divides by the norm of each
    layer; neither is done here.
    """
    encoder, split, rows = asked.encoder, asked.corpus.split("train"), asked.rows
    probe, found, done = frozen_probe(asked), list[np.ndarray](), 0
    for number, batch in enumerate(micro_batches(split, rows, encoder.tokens_per_batch(None)), 1):
        gates = torch.ones(
            encoder.layers, len(batch.rows), encoder.heads, device=encoder.device
        ).requires_grad_()
        rules = {layer: Gated(of_layer) for layer, of_layer in enumerate(gates.unbind())}
        with encoder.ruled(dict(rules)), numbers_of(f"batch {number} of the {split.name} split"):
            states = encoder.token_states(batch)
        features = live_features(states, split, batch)
        summed = probe.losses(features, torch.arange(len(features))[None]) * len(features.labels)
        (gradient,) = torch.autograd.grad(summed.sum(), gates)
        # An input without a label of its tokens has no loss.
        labels = (
            features.lengths.clamp(min=1) if features.token_labels else torch.ones(len(batch.rows))
        )
        found.append((gradient.abs().cpu() / labels[None, :, None]).double().numpy())
        done += len(batch.rows)
        asked.progress(done, len(rows))
    of_inputs = np.concatenate(found, axis=1)
    error = of_inputs.std(axis=1, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else None
    return Scored(of_inputs.mean(axis=1), error, evaluations=2)
