"""Training λ: how much of its input-dependent attention each head keeps (paper, Section 3.2); and
the losses on training text by which heads are trained and scored: of what a model's own head
answers, or of a probe that is trained on the encoder as it is and then frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices
from papa.attention.interface import attention_modules, routed
from papa.attention.replacement import mixed_by
from papa.attention.substitutes import Mixed, Substitute, by_layer, rules_of
from papa.corpora.batches import micro_batch, rows_of_like_length
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.tokens import IGNORED
from papa.encoders.encoder import Encoder, numbers_of
from papa.probes.evaluate import build_probe
from papa.probes.features import live_features
from papa.probes.minibatches import Part, part_tokens, window_rows
from papa.probes.own import OwnHead, answers_of, class_names
from papa.probes.probes import Probe
from papa.probes.training import JointLearner, Losses, probe_loss, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.seeds import is_stable, rows_of_seed
from papa.scores.answers import class_ids
from papa.spec import Order, ProbeSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head

Rows = Int[np.ndarray, " rows"]
Summed = tuple[Float[Tensor, ""], Int[Tensor, " rows"]]
"""The sum of the losses of what rows are asked, and how much each is; gradients pass."""


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
        joint.train(spec, rows, **how)
    else:
        (layers, heads), loss = constants.values.shape[:2], OwnLoss(encoder, corpus, task)
        every, on_device = [*np.ndindex(layers, heads)], constants.to(loss.device)

        def of_mix(some: Rows, shares: Tensor) -> Summed:
            return loss(some, Mixed(on_device, shares), every)

        learner = ThetaLearner((layers, heads), of_mix, loss.batches, rows)
        theta, width = learner.theta, layers * encoder.model.config.hidden_size
        window = window_rows(len(split), int(split.lengths.sum()), width, spec.batch_size)
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
    shares: Callable[[Tensor, Part], Tensor] = lambda theta, part: theta.sigmoid(),
) -> JointLearner:
    """What trains θ, 0 at the start, and the task's probe on this encoder, whose heads keep
    ``shares`` of their own attention.
    """
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    on_device, split = constants.to(encoder.device), corpus.split("train")
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    loss = probe_loss(
        encoder,
        probe,
        split,
        task.probe.encoder_dropout,
        block=lambda part: mixed_by(encoder, on_device, shares(theta, part)),
    )
    groups: list[dict[str, Any]] = [{"params": [theta]}, {"params": [*probe.parameters()]}]
    return JointLearner(groups, loss, encoder, split, seed)


class ThetaLearner:
    """What trains θ, 0 at the start, alone: by a loss of ``rows`` where heads keep so much of their
    own attention, of which ``parts`` are taken at once.
    """

    def __init__(
        self,
        size: tuple[int, int],
        loss: Callable[[Rows, Float[Tensor, "layers heads"]], Summed],
        parts: Callable[[Rows], Iterable[Rows]],
        rows: Rows,
    ) -> None:
        self.theta = nn.Parameter(torch.zeros(size))
        self.groups = [{"params": [self.theta]}]
        self._loss, self._parts, self._rows = loss, parts, rows

    def window(self, rows: Rows, epoch: int, index: int) -> Losses:
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


class HeadLoss:
    """A loss on rows of a corpus's training split while heads put out a substitute."""

    def __init__(self, device: torch.device, corpus: TokenisedCorpus, tokens: int) -> None:
        self.device, self.split, self._tokens = device, corpus.split("train"), tokens

    def batches(self, rows: Rows) -> Iterator[Rows]:
        """Rows of like length together."""
        lengths = self.split.first_lengths[rows], self.split.lengths[rows]
        for part in rows_of_like_length(*lengths, self._tokens):
            yield rows[part]

    def __call__(self, rows: Rows, substitute: Substitute, heads: Sequence[Head]) -> Summed:
        """Of rows of the split, with a substitute on the device."""
        raise NotImplementedError


class ProbeLoss(HeadLoss):
    """Of a frozen probe."""

    def __init__(self, encoder: Encoder, probe: Probe, corpus: TokenisedCorpus) -> None:
        super().__init__(encoder.device, corpus, encoder.tokens_per_batch(None))
        self._encoder, self._probe = encoder, probe

    def batches(self, rows: Rows) -> Iterator[Rows]:
        return super().batches(np.sort(rows))

    def __call__(self, rows: Rows, substitute: Substitute, heads: Sequence[Head]) -> Summed:
        encoder, batch = self._encoder, micro_batch(self.split, rows)
        rules = rules_of(substitute, by_layer(heads), encoder.layers)
        with encoder.ruled(rules), numbers_of(f"the {self.split.name} split"):
            states = encoder.token_states(batch)
        features = live_features(states, self.split, batch)
        mean = self._probe.losses(features, torch.arange(len(features))[None]).sum()
        return mean.double() * len(features.labels), features.label_counts


class OwnLoss(HeadLoss):
    """``task.lambda_objective`` of what a model's own head answers."""

    def __init__(self, own: OwnHead, corpus: TokenisedCorpus, task: TaskSpec) -> None:
        device = own.model.device
        # As many as a step of λ's training takes at once.
        super().__init__(device, corpus, part_tokens(device.type != "cpu"))
        own.model.requires_grad_(False)
        self._own, self._task, names = own, task, corpus.label_names
        # What the model's head calls the task's classes.
        self._ids = (
            class_ids(names, class_names(own.model), task)
            if names and not task.with_itself
            else None
        )

    def __call__(self, rows: Rows, substitute: Substitute, heads: Sequence[Head]) -> Summed:
        model, task = self._own.model, self._task
        batch = self._own.padded(self.split, rows)
        own: dict[str, Tensor] = {}
        if task.with_itself:
            with torch.no_grad():
                own = answers_of(model, batch, task.of_embeddings)
        modules = attention_modules(model)
        rules = rules_of(substitute, by_layer(heads), len(modules))
        with routed(model, modules, rules) as dispatch:
            dispatch.slots, dispatch.real = batch.slots, batch.mask
            found = answers_of(model, batch, task.of_embeddings)
        return self._summed(own, found, self.split.labels_of(rows)), found["lengths"]

    def _summed(
        self, own: dict[str, Tensor], found: dict[str, Tensor], labels: np.ndarray
    ) -> Float[Tensor, ""]:
        if self._task.of_embeddings:
            pair = found["embeddings"], own["embeddings"]
            return (1 - nn.functional.cosine_similarity(*pair)).sum()
        if self._task.kind in ("mlm", "causal"):
            return -found["log_probabilities"].sum()
        logits = found["logits"]
        if self._task.with_itself:
            before, after = own["logits"].log_softmax(-1), logits.log_softmax(-1)
            return nn.functional.kl_div(after, before, reduction="sum", log_target=True)
        if self._task.regression:
            truth = torch.from_numpy(labels).to(logits)
            return nn.functional.mse_loss(logits[:, 0], truth, reduction="sum")
        kept = labels[labels != IGNORED]
        truth = torch.from_numpy(kept if self._ids is None else self._ids[kept]).long()
        return nn.functional.cross_entropy(logits, truth.to(logits.device), reduction="sum")
