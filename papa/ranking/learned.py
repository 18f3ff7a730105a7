"""Training λ: how much of its input-dependent attention each head keeps (paper, Section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import mixed
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import rows_of_seed
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, train_jointly
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.seeds import is_stable
from papa.spec import Order, RankingSpec, TaskSpec


def lambda_gradients(
    *,
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
) -> JointGradients:
    """What finds gradients for θ (0 at the start) and the task's probe, on this encoder."""
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    return JointGradients(
        encoder,
        theta,
        build_probe(encoder, corpus, task, [seed]).to(encoder.device),
        corpus,
        dropout=task.probe.encoder_dropout,
        block=partial(mixed, encoder, constants.to(encoder.device), theta),
    )


def train_lambda(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    ranking: RankingSpec,
    *,
    seed: int = 0,
    sets: Sequence[tuple[Order, int]] = (),
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> Float[Tensor, "epochs layers heads"]:
    """λ of every head after every epoch: θ (0 at the start) and a probe are trained together, the
    encoder is frozen.

    Args:
        seed: of the probe's start, the sample of rows and their order.
        sets: with ``until_stable``, the sets of constant heads that an epoch must leave as they
            were to be the last: an order by λ and how many of its first heads are constant.
    """
    here = lambda_gradients(
        encoder=encoder, constants=constants, corpus=corpus, task=task, seed=seed
    )
    theta, lambdas = here.trained[0], list[Tensor]()

    def after_epoch() -> bool:
        lambdas.append(theta.detach().sigmoid().cpu())
        return ranking.until_stable and is_stable(lambdas, sets)

    train_jointly(
        encoder,
        here.of_parts,
        here.trained,
        corpus,
        spec=task.probe,
        rows=rows_of_seed(len(corpus.split("train")), ranking.rows, seed),
        epochs=ranking.epochs_on(task),
        rate=ranking.learning_rate or task.probe.learning_rate,
        seed=seed,
        progress=progress,
        on_epoch=on_epoch,
        stop=after_epoch,
    )
    return torch.stack(lambdas)
