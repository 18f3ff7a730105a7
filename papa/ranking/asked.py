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
from papa.heads.replacement import replaced
from papa.heads.substitutes import Substitute, by_layer, rules_of
from papa.models.encoder import Encoder, numbers_of
from papa.probes.features import live_features
from papa.probes.own import OwnHead, class_names
from papa.probes.probes import Probe
from papa.probes.training import Rows, Summed, part_tokens
from papa.progress import Progress, ignore_progress
from papa.ranking.seeds import rows_of_seed
from papa.scores.answers import class_ids
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batch, rows_of_like_length
from papa.text.corpus import TokenisedCorpus
from papa.text.tokens import IGNORED


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
        batch = micro_batch(self.split, rows)
        with replaced(self._encoder, substitute, heads), numbers_of("the train split"):
            states = self._encoder.token_states(batch)
        features = live_features(states, self.split, batch)
        mean = self._probe.losses(features, torch.arange(len(features))[None]).sum()
        return mean.double() * len(features.labels), features.label_counts


class OwnLoss(HeadLoss):
    """``task.lambda_objective`` of what a model's own head answers."""

    def __init__(self, own: OwnHead, corpus: TokenisedCorpus, task: TaskSpec) -> None:
        device = own.model.device
        # As many as a step of λ's training takes at once.
        super().__init__(device, corpus, part_tokens(device))
        own.model.requires_grad_(False)
        self._own, self._task, self._names = own, task, corpus.label_names

    def __call__(self, rows: Rows, substitute: Substitute, heads: Sequence[Head]) -> Summed:
        own, batch, before = self._own, self._own.padded(self.split, rows), dict[str, Tensor]()
        if self._task.with_itself:
            with torch.no_grad():
                before = own.answers_of(batch, own.outputs(batch))
        rules = rules_of(substitute, by_layer(heads), own.layers)
        after = own.answers_of(batch, own.outputs(batch, rules))
        return self._summed(before, after, self.split.labels_of(rows)), after["lengths"]

    def _summed(
        self, before: dict[str, Tensor], after: dict[str, Tensor], labels: np.ndarray
    ) -> Float[Tensor, ""]:
        task = self._task
        if task.of_embeddings:
            pair = after["embeddings"], before["embeddings"]
            return (1 - nn.functional.cosine_similarity(*pair)).sum()
        if task.kind in ("mlm", "causal"):
            return -after["log_probabilities"].sum()
        logits = after["logits"]
        if task.with_itself:
            own, mixed = before["logits"].log_softmax(-1), logits.log_softmax(-1)
            return nn.functional.kl_div(mixed, own, reduction="sum", log_target=True)
        if task.regression:
            truth = torch.from_numpy(labels).to(logits)
            return nn.functional.mse_loss(logits[:, 0], truth, reduction="sum")
        labels = labels[labels != IGNORED]
        if self._names:
            labels = class_ids(self._names, class_names(self._own.model), task)[labels]
        truth = torch.from_numpy(labels).long().to(logits.device)
        return nn.functional.cross_entropy(logits, truth, reduction="sum")


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
