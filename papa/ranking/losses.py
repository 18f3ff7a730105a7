"""Losses on training text by which heads are scored: of what a model's own head answers, or of a
probe that is trained on the encoder as it is and then frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.interface import attention_modules, routed
from papa.ablation.substitutes import Mixed, Substitute, rules_of
from papa.corpora.batches import rows_of_like_length
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens
from papa.probes.minibatches import part_tokens
from papa.probes.own import AtSlots, Padded, answers_of, class_names
from papa.scores.answers import class_ids
from papa.spec import TaskSpec

Loss = Callable[
    [Int[np.ndarray, " rows"], Float[Tensor, "layers *rows heads"]],
    tuple[Float[Tensor, ""], Int[Tensor, " rows"]],
]
"""The sum of the losses of what rows are asked, and how much each is, where every head keeps a
share of its own attention, in all rows or in each; gradients pass."""


@dataclass(frozen=True)
class OwnLoss:
    """``task.lambda_objective`` on rows of a split, with a substitute as far as heads' attention is
    not their own; ``ids`` are what the model's head calls the task's classes.
    """

    model: PreTrainedModel
    special_tokens: SpecialTokens
    substitute: Substitute
    split: TokenisedSplit
    task: TaskSpec
    ids: Int[np.ndarray, " classes"] | None

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        special_tokens: SpecialTokens,
        substitute: Substitute,
        corpus: TokenisedCorpus,
        task: TaskSpec,
    ) -> OwnLoss:
        """That on the training split of a corpus."""
        asked = corpus.label_names and not task.with_itself
        ids = class_ids(corpus.label_names or (), class_names(model), task) if asked else None
        return cls(model, special_tokens, substitute, corpus.split("train"), task, ids)

    def batches(self, rows: Int[np.ndarray, " rows"]) -> Iterator[Int[np.ndarray, " some"]]:
        """Rows of like length together, as many as a step of λ's training takes at once."""
        lengths = self.split.first_lengths[rows], self.split.lengths[rows]
        for part in rows_of_like_length(*lengths, part_tokens(self.model.device.type != "cpu")):
            yield rows[part]

    def __call__(
        self, rows: Int[np.ndarray, " rows"], shares: Float[Tensor, "layers *rows heads"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, " rows"]]:
        model, task, numbers = self.model, self.task, self.split.rows[rows]
        batch = Padded.of(self.split, numbers, self.special_tokens, model.device)
        own: dict[str, Tensor] = {}
        if task.with_itself:
            with torch.no_grad():
                own = answers_of(model, batch, task.of_embeddings)
        at = AtSlots(Mixed(self.substitute, shares), batch.slots)
        layers, every = len(shares), range(shares.shape[-1])
        rules = rules_of(at, dict.fromkeys(range(layers), every), layers)
        with routed(model, attention_modules(model), rules):
            found = answers_of(model, batch, task.of_embeddings)
        return self._summed(own, found, self.split.labels_of(numbers)), found["lengths"]

    def _summed(
        self, own: dict[str, Tensor], found: dict[str, Tensor], labels: np.ndarray
    ) -> Float[Tensor, ""]:
        if self.task.of_embeddings:
            pair = found["embeddings"], own["embeddings"]
            return (1 - nn.functional.cosine_similarity(*pair)).sum()
        if self.task.kind in ("mlm", "causal"):
            return -found["log_probabilities"].sum()
        logits = found["logits"]
        if self.task.with_itself:
            before, after = own["logits"].log_softmax(-1), logits.log_softmax(-1)
            return nn.functional.kl_div(after, before, reduction="sum", log_target=True)
        if self.task.regression:
            truth = torch.from_numpy(labels).to(logits)
            return nn.functional.mse_loss(logits[:, 0], truth, reduction="sum")
        kept = labels[labels != IGNORED]
        truth = torch.from_numpy(kept if self.ids is None else self.ids[kept]).long()
        return nn.functional.cross_entropy(logits, truth.to(logits.device), reduction="sum")
