"""What a method that scores heads is asked, and the losses by which heads are scored and trained:
of what a model's own head answers, or of a probe that is trained on the encoder as it is and then
frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.heads.constants import ConstantMatrices
from papa.heads.interface import attention_modules, routed
from papa.heads.substitutes import Substitute, by_layer, rules_of
from papa.models.encoder import Encoder, numbers_of
from papa.probes.features import live_features
from papa.probes.minibatches import part_tokens
from papa.probes.own import OwnHead, answers_of, class_names
from papa.probes.probes import Probe
from papa.progress import Progress, ignore_progress
from papa.ranking.seeds import rows_of_seed
from papa.scores.answers import class_ids
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batch, rows_of_like_length
from papa.text.corpus import TokenisedCorpus
from papa.text.tokens import IGNORED

Rows = Int[np.ndarray, " rows"]
Summed = tuple[Float[Tensor, ""], Int[Tensor, " rows"]]
"""The sum of the losses of what rows are asked, and how much each is; gradients pass."""


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


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what.

    Attributes:
        encoder: an ``Encoder``, whose heads; frozen, and as before after the call. None of a
            decoder, which has its ``own`` head alone.
        corpus: the task's text; its training split alone is read.
        ranking: the settings that the method's entry names in ``reads``, and ``rows``.
        probe: trained on the encoder as it is and frozen, for methods that read it.
        own: the model with its own head, where that answers the task.
    """

    encoder: Any
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    execution: ExecutionSpec
    progress: Progress = ignore_progress
    probe: Probe | None = None
    own: OwnHead | None = None

    @property
    def rows(self) -> Int[np.ndarray, " rows"]:
        """The training rows that heads are scored on: ``ranking.rows`` of the seed's, or all."""
        return rows_of_seed(len(self.corpus.split("train")), self.ranking.rows, self.seed)

    def loss(self) -> HeadLoss:
        """Of what the model's own head answers, or of the frozen probe."""
        if self.own is not None:
            return OwnLoss(self.own, self.corpus, self.task)
        assert self.probe is not None, "an entry with frozen_probe"
        return ProbeLoss(self.encoder, self.probe, self.corpus)
