"""Losses on training text by which heads are scored: of what a model's own head answers, or of a
probe that is trained on the encoder as it is and then frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.attention.interface import attention_modules, routed
from papa.attention.substitutes import Mixed, Substitute, rules_of
from papa.corpora.batches import rows_of_like_length
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.tokens import IGNORED
from papa.probes.minibatches import part_tokens
from papa.probes.own import OwnHead, answers_of, class_names
from papa.scores.answers import class_ids
from papa.spec import TaskSpec

Loss = Callable[
    [Int[np.ndarray, " rows"], Float[Tensor, "layers *rows heads"]],
    tuple[Float[Tensor, ""], Int[Tensor, " rows"]],
]
"""The sum of the losses of what rows are asked, and how much each is, where every head keeps a
share of its own attention, in all rows or in each; gradients pass."""


class OwnLoss:
    """``task.lambda_objective`` on rows of a corpus's training split, with a substitute as far as
    heads' attention is not their own.
    """

    def __init__(
        self,
        own: OwnHead,
        substitute: Substitute,
        corpus: TokenisedCorpus,
        task: TaskSpec,
    ) -> None:
        self.model, self.split = own.model.requires_grad_(False), corpus.split("train")
        self._own, self._task = own, task
        self._substitute = substitute.to(own.model.device)
        asked = corpus.label_names and not task.with_itself
        # What the model's head calls the task's classes.
        self._ids = (
            class_ids(corpus.label_names or (), class_names(own.model), task) if asked else None
        )

    def batches(self, rows: Int[np.ndarray, " rows"]) -> Iterator[Int[np.ndarray, " some"]]:
        """Rows of like length together, as many as a step of λ's training takes at once."""
        lengths = self.split.first_lengths[rows], self.split.lengths[rows]
        for part in rows_of_like_length(*lengths, part_tokens(self.model.device.type != "cpu")):
            yield rows[part]

    def __call__(
        self, rows: Int[np.ndarray, " rows"], shares: Float[Tensor, "layers *rows heads"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, " rows"]]:
        model, task, numbers = self.model, self._task, self.split.rows[rows]
        batch = self._own.padded(self.split, numbers)
        own: dict[str, Tensor] = {}
        if task.with_itself:
            with torch.no_grad():
                own = answers_of(model, batch, task.of_embeddings)
        layers, every = len(shares), range(shares.shape[-1])
        mix = Mixed(self._substitute, shares)
        rules = rules_of(mix, dict.fromkeys(range(layers), every), layers)
        with routed(model, attention_modules(model), rules) as dispatch:
            dispatch.slots, dispatch.real = batch.slots, batch.mask
            found = answers_of(model, batch, task.of_embeddings)
        return self._summed(own, found, self.split.labels_of(numbers)), found["lengths"]

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
