"""λ of a model's heads, trained on the model's own use: no probe, no labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papa.ablation.interface import attention_modules, head_count
from papa.ablation.substitutes import Mixed
from papa.errors import DataError, SpecError
from papa.library.ablating import By, ablated, substitute_for
from papa.library.bars import bar
from papa.library.fidelity import batches_of, kl_divergence, of_batch
from papa.ranking.seeds import TrainedLambda


def train_own_lambda(
    model: nn.Module,
    data: Iterable[Mapping[str, Any]],
    by: By = "average",
    *,
    made_from: Iterable[Mapping[str, Any]] | None = None,
    epochs: int = 3,
    learning_rate: float = 0.05,
    seeds: Sequence[int] = (0, 1, 2),
    progress: bool = True,
) -> TrainedLambda:
    """λ of every head of λA + (1-λ)C, trained on what the model itself is for; its weights stay as
    they are.

    What is minimised follows from what the model puts out. A language model: its loss, of the next
    token or where ``labels`` say. Other logits: the Kullback-Leibler divergence from the model's
    own answers. Hidden states: one less the cosine of mean-pooled embeddings to their own.
    ``papa.constant_heads`` makes an order of what it gives.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> batch = {"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}
        >>> lambdas = papa.train_own_lambda(model, [batch], by="relative", progress=False)
        >>> len(papa.constant_heads(lambdas, fraction=0.5))
        2

    Args:
        model: as for ``papa.ablated``, in eval mode.
        data: what the model is called with: an iterable of keyword arguments; a step is taken on
            each.
        by: C, as for ``papa.ablated``.
        made_from: the same as ``data``, for a ``by`` that is made from text; None takes ``data``.
        epochs: passes over ``data``.
        learning_rate: of AdamW, for θ; λ = sigmoid(θ), and θ starts at 0 (Hassid et al., 2022,
            Section 3.2).
        seeds: λ is trained once with each, which is of the order of the batches.
        progress: whether to show a bar.

    Raises:
        EncoderError: the model is in train mode, or its attention cannot be reached.
        DataError: there is no answer to train on.
        SpecError: epochs, the learning rate or seeds are impossible, or training diverged.
    """
    if epochs < 1 or not learning_rate > 0 or not seeds:
        raise SpecError(
            f"epochs is {epochs}, learning_rate is {learning_rate} and seeds are {list(seeds)}, "
            "expected 1 or more, above 0, and at least one"
        )
    batches = batches_of(model, data)
    sizes = [head_count(module) for module in attention_modules(model)]
    every = {layer: range(size) for layer, size in enumerate(sizes)}
    substitute = substitute_for(model, by, data=batches if made_from is None else made_from)
    by_epoch: dict[int, np.ndarray] = {}
    with _frozen(model):
        for seed in seeds:
            theta = torch.zeros(len(sizes), sizes[0], requires_grad=True)
            optimizer = torch.optim.AdamW([theta], lr=learning_rate, weight_decay=0.0)
            draw, found = torch.Generator().manual_seed(seed), []
            with bar(f"λ, seed {seed}", progress) as report:
                for epoch in range(epochs):
                    for step, index in enumerate(
                        torch.randperm(len(batches), generator=draw).tolist(), 1
                    ):
                        own = _answers(model, batches[index])
                        with (
                            torch.enable_grad(),
                            ablated(model, every, Mixed(substitute, theta.sigmoid())),
                        ):
                            loss = _loss(
                                own, of_batch(model, batches[index], model(**batches[index]))
                            )
                        if not loss.isfinite():
                            raise SpecError(
                                f"training λ diverged: the loss is {loss.item()}; lower "
                                "learning_rate, or look at the model's answers to the data"
                            )
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        report(epoch * len(batches) + step, epochs * len(batches))
                    found.append(theta.detach().sigmoid().numpy().copy())
            by_epoch[seed] = np.stack(found)
    return TrainedLambda(by_epoch)


@torch.no_grad()
def _answers(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    found = of_batch(model, inputs, model(**inputs))
    if not found["lengths"].sum():
        raise DataError(
            "a batch of data holds no token that counts: give longer texts, or labels that are "
            "not all -100"
        )
    return found


def _loss(own: Mapping[str, Tensor], mixed: Mapping[str, Tensor]) -> Tensor:
    if "loss" in mixed:
        return mixed["loss"].mean()
    if "embeddings" in mixed:
        return 1 - nn.functional.cosine_similarity(mixed["embeddings"], own["embeddings"]).mean()
    name = "words" if "words" in mixed else "logits"
    return kl_divergence(own[name], mixed[name]).mean()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
