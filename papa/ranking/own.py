"""λ of a model's heads, trained on what its own head answers: no probe, labels where needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.interface import LayerRule, attention_modules, routed
from papa.ablation.substitutes import ByPosition, Mixed, heads_replaced
from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import rows_of_like_length
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import sampled_rows
from papa.corpora.tokens import IGNORED, SpecialTokens
from papa.errors import SpecError
from papa.probes.minibatches import minibatches, part_tokens, window_rows
from papa.probes.own import AtSlots, Padded, answers_of, class_ids, class_names
from papa.probes.training import adamw
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.seeds import is_stable
from papa.spec import Order, RankingSpec, TaskSpec


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

    Args:
        model: as ``papa.probes.own.load_own`` gives it; as before after the call.
        constants: C, what attention is mixed with.
        corpus: its training split is what λ is trained on.
        special_tokens: of the model's tokenizer.
        task: what its head is asked; ``probe`` says how large minibatches are, and the optimiser.
        ranking: epochs, until_stable, rate, rows.
        seed: of the sample of rows and their order.
        sets: as for ``papa.ranking.learned.train_lambda``.
        progress: called with (rows done, rows) over all epochs.
        on_epoch: called with each epoch's loss, under ``seed``.

    Raises:
        SpecError: the loss is no longer a number.
    """
    split, rate = corpus.split("train"), ranking.learning_rate or task.probe.learning_rate
    rows, epochs = sampled_rows(len(split), ranking.rows, seed), ranking.epochs_on(task)
    config = model.config
    size = (int(config.num_hidden_layers), int(config.num_attention_heads))
    theta = nn.Parameter(torch.zeros(size, device=model.device))
    optimizer, lambdas = adamw([theta], task.probe, rate), list[Tensor]()
    ids = (
        class_ids(corpus.label_names, class_names(model), task)
        if corpus.label_names and not (task.of_embeddings or _agreement(task))
        else None
    )
    loss_of = partial(_loss, model, ByPosition(constants.matrices), task, ids)
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
            for part in rows_of_like_length(
                split.first_lengths[chosen],
                split.lengths[chosen],
                part_tokens(model.device.type != "cpu"),
            ):
                batch = Padded.of(split, split.rows[chosen[part]], special_tokens, model.device)
                labels = split.labels_of(split.rows[chosen[part]])
                summed, count = loss_of(batch, labels, theta)
                if count:
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


def _agreement(task: TaskSpec) -> bool:
    """Whether λ is trained on agreement; masked and next words have a loss of their own."""
    return task.metric == "agreement" and task.kind not in ("mlm", "causal")


def _loss(
    model: PreTrainedModel,
    constants: ByPosition,
    task: TaskSpec,
    ids: Int[np.ndarray, " classes"] | None,
    batch: Padded,
    labels: np.ndarray,
    theta: Float[Tensor, "layers heads"],
) -> tuple[Tensor, int]:
    """The sum of the losses of a batch's answers, and how many they are."""
    own: dict[str, Tensor] = {}
    if task.of_embeddings or _agreement(task):
        with torch.no_grad():
            own = answers_of(model, batch, task.of_embeddings)
    at = AtSlots(Mixed(constants, theta.sigmoid()), batch.slots)
    rules: dict[int, LayerRule] = {
        layer: partial(
            heads_replaced, layer=layer, heads=torch.arange(theta.shape[1]), substitute=at
        )
        for layer in range(len(theta))
    }
    with torch.enable_grad(), routed(model, attention_modules(model), rules):
        found = answers_of(model, batch, task.of_embeddings)
    if task.of_embeddings:
        cosines = nn.functional.cosine_similarity(found["embeddings"], own["embeddings"])
        return (1 - cosines).sum(), len(cosines)
    if task.kind in ("mlm", "causal"):
        return -found["log_probabilities"].sum(), len(found["log_probabilities"])
    logits = found["logits"]
    if _agreement(task):
        before, after = own["logits"].log_softmax(-1), logits.log_softmax(-1)
        divergence = nn.functional.kl_div(after, before, reduction="sum", log_target=True)
        return divergence, len(logits)
    if task.regression:
        truth = torch.from_numpy(labels).to(logits)
        return nn.functional.mse_loss(logits[:, 0], truth, reduction="sum"), len(logits)
    kept = labels[labels != IGNORED]
    truth = torch.from_numpy(kept if ids is None else ids[kept]).long().to(logits.device)
    return nn.functional.cross_entropy(logits, truth, reduction="sum"), len(logits)
