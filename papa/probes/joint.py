"""Training a probe together with a parameter of the encoder's attention; the encoder itself stays frozen."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from papa.corpora.compact import compact_batch
from papa.corpora.corpus import TokenizedCorpus
from papa.corpora.grouped import grouped_batches
from papa.encoders.encoder import Encoder
from papa.errors import SpecError
from papa.probes.live import live_features
from papa.probes.probes import Probe
from papa.probes.sources import active_dropout
from papa.progress import Progress
from papa.spec import ProbeSpec


def train_jointly(
    encoder: Encoder,
    parameter: nn.Parameter,
    probe: Probe,
    corpus: TokenizedCorpus,
    *,
    spec: ProbeSpec,
    rows: int | None,
    epochs: int,
    rate: float,
    seed: int,
    progress: Progress,
) -> None:
    """Train ``parameter`` and ``probe`` on the training split with AdamW at a constant rate.

    The caller holds the block that puts the parameter into the attention. Both are changed in place.

    Args:
        encoder: gradients pass through it and stay nowhere in it.
        parameter: θ of the mix, or constant matrices.
        probe: for one seed.
        corpus: its training split is trained on.
        spec: batch size, and whether the encoder's dropout is on.
        rows: the first rows of the split; None takes all.
        epochs: passes over the rows.
        rate: learning rate of both.
        seed: of the order of the rows, and of dropout.
        progress: told (rows done, rows) over all epochs.

    Raises:
        SpecError: the loss is no longer a number.
    """
    split = corpus.split("train")
    numbers = np.arange(len(split))[:rows]
    optimizer = torch.optim.AdamW([parameter, *probe.parameters()], lr=rate, fused=True)
    total, done = epochs * len(numbers), 0
    for epoch in range(epochs):
        for members in grouped_batches(split, numbers, spec.batch_size, (seed, epoch)):
            batch = compact_batch(split, members, corpus.pad_token_id)
            with active_dropout(encoder, seed + done) if spec.encoder_dropout else nullcontext():
                hidden_states = encoder.hidden_states(batch)
            features = live_features(hidden_states, split, batch)
            loss = probe.losses(features, torch.arange(len(members))[None]).sum()
            if not bool(loss.isfinite()):
                raise SpecError(
                    f"learning_rate: the loss is {float(loss)} in epoch {epoch + 1}: lower the rate, now {rate:g}"
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            done += len(members)
            progress(done, total)
