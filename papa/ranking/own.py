"""λ of a model's heads, trained on what its own head answers: no probe, labels where needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.substitutes import ByPosition
from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import sampled_rows
from papa.corpora.tokens import SpecialTokens
from papa.errors import SpecError
from papa.probes.minibatches import minibatches, window_rows
from papa.probes.training import adamw
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.own_loss import OwnLoss, in_batches
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

    The model is of ``papa.probes.own.load_own``, and as before after the call; ``task.probe`` says
    how large minibatches are, and the optimiser; ``sets`` are as for ``papa.ranking.learned``.
    """
    split, rate = corpus.split("train"), ranking.learning_rate or task.probe.learning_rate
    rows, epochs = sampled_rows(len(split), ranking.rows, seed), ranking.epochs_on(task)
    config = model.config
    size = (int(config.num_hidden_layers), int(config.num_attention_heads))
    theta = nn.Parameter(torch.zeros(size, device=model.device))
    optimizer, lambdas = adamw([theta], task.probe, rate), list[Tensor]()
    substitute = ByPosition(constants.matrices)
    loss_of = OwnLoss.on_training_text(model, substitute, corpus, special_tokens, task)
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
