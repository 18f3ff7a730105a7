"""The loss of what a model's own head answers while its heads put out a mix."""

from __future__ import annotations

from collections.abc import Iterator
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
from papa.probes.own import AtSlots, Padded, answers_of, class_ids, class_names
from papa.spec import TaskSpec


@dataclass(frozen=True)
class OwnLoss:
    """``task.lambda_objective`` on rows of a split, with a substitute as far as heads' attention is
    not their own; ``ids`` are what the model's head calls the task's classes, if any.
    """

    model: PreTrainedModel
    substitute: Substitute
    split: TokenisedSplit
    special_tokens: SpecialTokens
    task: TaskSpec
    ids: Int[np.ndarray, " classes"] | None

    @classmethod
    def on_training_text(
        cls,
        model: PreTrainedModel,
        substitute: Substitute,
        corpus: TokenisedCorpus,
        special_tokens: SpecialTokens,
        task: TaskSpec,
    ) -> OwnLoss:
        """That on the training split of a corpus."""
        asked = corpus.label_names and not task.with_itself
        ids = class_ids(corpus.label_names or (), class_names(model), task) if asked else None
        return cls(model, substitute, corpus.split("train"), special_tokens, task, ids)

    def __call__(
        self, rows: Int[np.ndarray, " rows"], shares: Float[Tensor, "layers *rows heads"]
    ) -> tuple[Tensor, Int[Tensor, " rows"]]:
        """The sum of the losses of the rows' answers, and how many answers each row has, where each
        head keeps a share of its own attention, in all rows or in each; gradients pass.
        """
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
        return self._loss(own, found, self.split.labels_of(numbers)), found["lengths"]

    def _loss(self, own: dict[str, Tensor], found: dict[str, Tensor], labels: np.ndarray) -> Tensor:
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


def in_batches(loss: OwnLoss, rows: Int[np.ndarray, " rows"]) -> Iterator[Int[np.ndarray, " some"]]:
    """Rows of like length together, as many as a step of λ's training takes at once."""
    split, on_gpu = loss.split, loss.model.device.type != "cpu"
    lengths = split.first_lengths[rows], split.lengths[rows]
    for part in rows_of_like_length(*lengths, part_tokens(on_gpu)):
        yield rows[part]
