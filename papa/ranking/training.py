"""Training λ: how much of its own attention each head wants to keep (paper, Section 3.3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.mixing import mixed
from papa.corpora.corpus import TokenizedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import train_jointly
from papa.progress import Progress, silent
from papa.spec import RankingSpec, TaskSpec


def train_lambda(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenizedCorpus,
    task: TaskSpec,
    ranking: RankingSpec,
    *,
    progress: Progress = silent,
) -> Float[Tensor, "layers heads"]:
    """λ of every head: θ (0 at the start) and a probe are trained together, the encoder stays frozen.

    Args:
        encoder: frozen; as before after the call.
        constants: C, what attention is mixed with.
        corpus: its training split is what λ is trained on.
        task: its probe.
        ranking: epochs, rate, rows, seed.
        progress: told (rows done, rows) over all epochs.

    Raises:
        SpecError: the loss is no longer a number.
    """
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    probe = build_probe(encoder, corpus, task, [ranking.seed]).to(encoder.device)
    with mixed(encoder, constants, theta):
        train_jointly(
            encoder,
            theta,
            probe,
            corpus,
            spec=task.probe,
            rows=ranking.rows,
            epochs=ranking.epochs,
            rate=ranking.learning_rate or task.probe.learning_rate,
            seed=ranking.seed,
            progress=progress,
        )
    return theta.detach().sigmoid().cpu()
