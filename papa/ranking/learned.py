"""Training λ: how much of its input-dependent attention each head keeps (paper, Section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import mixed
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.minibatches import window_rows
from papa.probes.own import OwnHead
from papa.probes.training import JointLearner, Losses, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.losses import Loss, OwnLoss
from papa.ranking.rows import rows_of_seed
from papa.ranking.seeds import is_stable
from papa.spec import Order, ProbeSpec, RankingSpec, TaskSpec

Parts = Callable[[Int[np.ndarray, " rows"]], Iterable[Int[np.ndarray, " some"]]]


def train_lambda(
    encoder: Encoder | OwnHead,
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
    """λ of every head after every epoch: θ, 0 at the start, is trained with a probe on a frozen
    encoder; or alone, on a model with its own head, to keep ``task.lambda_objective`` low.

    Args:
        seed: of the probe's start, the sample of rows and their order.
        sets: with ``until_stable``, the sets of constant heads that an epoch must leave as they
            were to be the last: an order by λ and how many of its first heads are constant.
    """
    split, spec = corpus.split("train"), lambda_spec(task, ranking)
    rows, lambdas = rows_of_seed(len(split), ranking.rows, seed), list[Tensor]()

    def after_epoch() -> bool:
        lambdas.append(theta.detach().sigmoid().cpu())
        return ranking.until_stable and is_stable(lambdas, sets)

    how: dict[str, Any] = {"progress": progress, "on_epoch": on_epoch, "stop": after_epoch}
    if isinstance(encoder, Encoder):
        joint = mix_learner(encoder, constants, corpus, task, seed)
        theta = joint.parameter
        joint.train(spec, seed, rows, **how)
    else:
        config = encoder.model.config
        loss = OwnLoss(encoder, constants, corpus, task)
        layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        learner = ThetaLearner((layers, heads), loss, loss.batches, rows)
        theta, of_tokens = learner.theta, (int(split.lengths.sum()), layers * config.hidden_size)
        window = window_rows(len(split), *of_tokens, spec.batch_size)
        train(learner, spec, [seed], rows=len(rows), window=window, **how)
    return torch.stack(lambdas)


def lambda_spec(task: TaskSpec, ranking: RankingSpec, rate: float | None = None) -> ProbeSpec:
    """How λ is trained on a task: as its probe, but for the ``ranking``'s epochs and rate."""
    rate = ranking.learning_rate or rate or task.probe.learning_rate
    changes = {"epochs": ranking.epochs or task.probe.epochs, "learning_rate": rate}
    return task.probe.model_copy(update=changes)


def mix_learner(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
) -> JointLearner:
    """What trains θ, 0 at the start, and the task's probe on this encoder."""
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    on_device = constants.to(encoder.device)
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    block = partial(mixed, encoder, on_device, theta)
    dropout = task.probe.encoder_dropout
    return JointLearner(encoder, theta, probe, corpus, dropout=dropout, block=block)


class ThetaLearner:
    """What trains θ, 0 at the start, alone: by a loss of ``rows`` at the mix of λ, of which
    ``parts`` are taken at once.
    """

    def __init__(
        self, size: tuple[int, int], loss: Loss, parts: Parts, rows: Int[np.ndarray, " rows"]
    ) -> None:
        self.theta = nn.Parameter(torch.zeros(size))
        self.groups = [{"params": [self.theta]}]
        self._loss, self._parts, self._rows = loss, parts, rows

    def window(self, rows: Int[np.ndarray, " rows"], epoch: int, index: int) -> Losses:
        def losses(batch: Int[Tensor, "1 batch"], _: int) -> Float[Tensor, " 1"]:
            total, answered = 0.0, 0
            self.theta.grad = torch.zeros_like(self.theta)
            for some in self._parts(self._rows[rows[batch[0].numpy()]]):
                with torch.enable_grad():
                    summed, lengths = self._loss(some, self.theta.sigmoid())
                if count := int(lengths.sum()):
                    self.theta.grad += torch.autograd.grad(summed, self.theta)[0]
                    total, answered = total + summed.item(), answered + count
            self.theta.grad /= max(answered, 1)
            return torch.tensor([total / max(answered, 1)])

        return losses
