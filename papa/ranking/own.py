"""λ of a model's heads, trained on what its own head answers, and the loss of those answers while
heads put out a mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.attention.constants import ConstantMatrices
from papa.attention.interface import attention_modules, routed
from papa.attention.substitutes import Mixed, Substitute, rules_of
from papa.corpora.batches import rows_of_like_length
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import rows_of_seed
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens
from papa.errors import SpecError
from papa.probes.minibatches import minibatches, part_tokens, window_rows
from papa.probes.own_model import Padded, answers_of, class_ids, class_names
from papa.probes.training import adamw
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.seeds import is_stable
from papa.spec import Order, RankingSpec, TaskSpec


@dataclass(frozen=True)
class OwnLoss:
    """``task.lambda_objective`` on rows of a split, with a substitute as far as heads' attention is
    not their own; ``ids`` are what the model's head calls the task's classes.
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
        layers, every = len(shares), range(shares.shape[-1])
        mix = Mixed(self.substitute.to(model.device), shares)
        rules = rules_of(mix, dict.fromkeys(range(layers), every), layers)
        with routed(model, attention_modules(model), rules) as dispatch:
            dispatch.slots, dispatch.real = batch.slots, batch.mask
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


def train_lambda_of_own(
    model: PreTrainedModel,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    special_tokens: SpecialTokens,
    task: TaskSpec,
    ranking: RankingSpec,
    *,
    seed: int = 0,
    sets: Sequence[tuple[Order, int]] = (),
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> Float[Tensor, "epochs layers heads"]:
    """λ of every head after every epoch: θ (0 at the start) alone is trained (after Hassid et al.,
    2022, Section 3.2, which trains a probe with it), to keep ``task.lambda_objective`` low.

    ``task.probe`` says how large minibatches are, and the optimiser; ``sets`` are as for
    ``papa.ranking.learned``.
    """
    split, rate = corpus.split("train"), ranking.learning_rate or task.probe.learning_rate
    rows, epochs = rows_of_seed(len(split), ranking.rows, seed), ranking.epochs_on(task)
    config = model.config
    size = (int(config.num_hidden_layers), int(config.num_attention_heads))
    theta = nn.Parameter(torch.zeros(size, device=model.device))
    optimizer, lambdas = adamw([theta], task.probe, rate), list[Tensor]()
    on_device = constants.to(model.device)
    loss_of = OwnLoss.on_training_text(model, on_device, corpus, special_tokens, task)
    window = window_rows(
        len(split),
        int(split.lengths.sum()),
        size[0] * int(config.hidden_size),
        task.probe.batch_size,
    )
    model.requires_grad_(False)
    done, total = 0, epochs * len(rows)
    for epoch in range(epochs):
        losses = list[float]()
        for positions in minibatches(len(rows), epoch, seed, window, task.probe.batch_size):
            chosen, loss, answered = rows[positions], 0.0, 0
            optimizer.zero_grad()
            theta.grad = torch.zeros_like(theta)
            for some in in_batches(loss_of, chosen):
                with torch.enable_grad():
                    summed, lengths = loss_of(some, theta.sigmoid())
                if count := int(lengths.sum()):
                    summed.backward()
                    loss, answered = loss + float(summed.detach()), answered + count
            theta.grad /= max(answered, 1)
            if not np.isfinite(loss) or not theta.grad.isfinite().all():
                raise SpecError(
                    f"learning_rate: the loss is {loss} in epoch {epoch + 1}: lower the rate, now "
                    f"{rate:g}, or look at the model's answers to the text"
                )
            if task.probe.max_grad_norm:
                nn.utils.clip_grad_norm_([theta], task.probe.max_grad_norm)
            optimizer.step()
            losses.append(loss / max(answered, 1))
            done += len(positions)
            progress(done, total)
        on_epoch(epoch + 1, {seed: sum(losses) / len(losses)})
        lambdas.append(theta.detach().sigmoid().cpu())
        if ranking.until_stable and is_stable(lambdas, sets):
            progress(total, total)
            break
    return torch.stack(lambdas)
